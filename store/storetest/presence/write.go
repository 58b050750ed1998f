package presence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func testUserIDs(t *testing.T, s store.Store) {
	ids := kit.OddIDs()
	batch := make([]store.PresenceEvent, len(ids))
	want := map[string]lastseen.State{}
	for i, id := range ids {
		require.NoError(t, lastseen.CheckUser(id))
		batch[i] = store.PresenceEvent{User: id, At: kit.Base + lastseen.Instant(i%3)}
		want[id] = lastseen.Merge(want[id], kit.Here(batch[i].At))
	}
	kit.Write(s.Ping).Send(t, kit.Namespace, batch)
	for i, state := range kit.Lookup(t, s, ids...) {
		require.Equal(t, want[ids[i]], state, "%q", ids[i])
	}
	for _, order := range []store.Order{store.Newest, store.Oldest} {
		got := kit.Walk(t, s, store.ListQuery{Ranges: kit.Everyone(), Order: order, Limit: 7})
		requireOrdered(t, order, got)
		require.Len(t, got, len(want))
		for _, r := range got {
			require.Equal(t, want[r.User], r.State, "%q", r.User)
		}
	}
	kit.Forget(t, s, ids...)
	require.Empty(t, kit.List(t, s, store.ListQuery{Ranges: kit.Everyone(), Limit: 10}))
}

func testTimes(t *testing.T, s store.Store) {
	for _, at := range []lastseen.Instant{
		lastseen.MinInstant, 2, 999, 1000, 100_123_000, kit.Base - 1, kit.Base, kit.Base + 1,
	} {
		user := at.String()
		require.Equal(t, kit.Here(at), kit.Ping(t, s, user, at))
		require.Equal(t, []lastseen.State{kit.Here(at)}, kit.Lookup(t, s, user))
		require.Equal(t, kit.Left(at), kit.Leave(t, s, user, at))
		require.Equal(t, []lastseen.State{kit.Left(at)}, kit.Lookup(t, s, user))
		only := []lastseen.Range{{From: at, To: at, Left: true}}
		require.Equal(t, []store.Record{{User: user, State: kit.Left(at)}},
			kit.List(t, s, store.ListQuery{Ranges: only, Limit: 10}))
	}
}

func testLargeBatch(t *testing.T, s store.Store) {
	names := kit.Crowd(t, s, 10_000)
	states := kit.Lookup(t, s, names...)
	require.Len(t, states, len(names))
	for i, state := range states {
		require.Equal(t, kit.Here(kit.Base), state, names[i])
	}
	batch := kit.Events(kit.Base, names...)
	for i := range batch {
		batch[i].At += lastseen.Instant(i)
	}
	for i, state := range kit.Write(s.Leave).Send(t, kit.Namespace, batch) {
		require.Equal(t, kit.Left(kit.Base+lastseen.Instant(i)), state, names[i])
	}
}

func testConcurrentWriters(t *testing.T, s store.Store) {
	const writers, writes, users = 16, 60, 20
	want := make([]map[string]lastseen.State, writers)
	var wg sync.WaitGroup
	for w := range writers {
		want[w] = map[string]lastseen.State{}
		random := rand.New(rand.NewPCG(uint64(w), 1))
		wg.Go(func() {
			for range writes {
				user, at := fmt.Sprint(random.IntN(users)), kit.Base+lastseen.Instant(random.IntN(50))
				state := lastseen.State{At: at, Left: random.IntN(2) == 0}
				write := s.Ping
				if state.Left {
					write = s.Leave
				}
				got, err := write(context.Background(), kit.Namespace, []store.PresenceEvent{{User: user, At: at}})
				if err != nil || got[0].Compare(state) < 0 {
					t.Errorf("%v of %s: %v, %v", state, user, got, err)
					return
				}
				want[w][user] = lastseen.Merge(want[w][user], state)
			}
		})
	}
	wg.Wait()
	for user := range users {
		var greatest lastseen.State
		for w := range writers {
			greatest = lastseen.Merge(greatest, want[w][fmt.Sprint(user)])
		}
		require.Equal(t, []lastseen.State{greatest}, kit.Lookup(t, s, fmt.Sprint(user)))
	}
}
