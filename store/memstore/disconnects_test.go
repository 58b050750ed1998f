package memstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func closeOf(t testing.TB, s *Store, user string) {
	t.Helper()
	require.NoError(t, s.CloseConnections(context.Background(), "chat", user))
}

func disconnectsAfter(
	t testing.TB, s *Store, after store.DisconnectPosition,
) (users []string, next store.DisconnectPosition) {
	t.Helper()
	list, next, err := s.Disconnects(context.Background(), after)
	require.NoError(t, err)
	for _, c := range list {
		users = append(users, c.User)
	}
	return users, next
}

// TestDisconnectsAge by true time: a clock that is set neither keeps nor deletes them.
func TestDisconnectsAge(t *testing.T) {
	t.Parallel()
	const years = 30 * 365 * 24 * time.Hour
	for _, wrong := range []time.Duration{0, years, -years} {
		m := &kit.Machine{}
		s := open(t, optionsOf(m))
		_, start := disconnectsAfter(t, s, "")
		closeOf(t, s, "alice")
		m.Passed.Add(time.Minute)
		m.Wrong.Set(wrong)
		closeOf(t, s, "bob")
		closeOf(t, s, "alice")
		m.Passed.Add(store.DisconnectsKept)
		users, next := disconnectsAfter(t, s, start)
		require.Equal(t, []string{"bob", "alice"}, users)
		require.Len(t, s.disconnects.last, 2)
		m.Passed.Add(time.Millisecond)
		users, again := disconnectsAfter(t, s, start)
		require.Empty(t, users)
		require.Equal(t, next, again)
		require.Empty(t, s.disconnects.last)
		require.Zero(t, s.disconnects.asked.Len())
		closeOf(t, s, "carol")
		users, _ = disconnectsAfter(t, s, start)
		require.Equal(t, []string{"carol"}, users)
	}
}

// TestDisconnectsAreBounded, and one user who is closed over and over takes the room of one.
func TestDisconnectsAreBounded(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	t.Parallel()
	s := open(t, Options{})
	_, start := disconnectsAfter(t, s, "")
	closeOf(t, s, "first")
	for range 3 * store.MaxDisconnects {
		closeOf(t, s, "often")
	}
	require.Equal(t, 2, s.disconnects.asked.Len())
	users, _ := disconnectsAfter(t, s, start)
	require.Equal(t, []string{"first", "often"}, users)
	for n := range store.MaxDisconnects + 10 {
		closeOf(t, s, fmt.Sprint(n))
	}
	users, _ = disconnectsAfter(t, s, start)
	require.Len(t, users, store.MaxDisconnects)
	require.Equal(t, "10", users[0])
	require.Len(t, s.disconnects.last, store.MaxDisconnects)
	require.Equal(t, store.MaxDisconnects, s.disconnects.asked.Len())
}

// TestDisconnectsOfAnotherProcess: a position from before a restart returns all that were asked since.
func TestDisconnectsOfAnotherProcess(t *testing.T) {
	o := Options{}
	s := open(t, o)
	for _, user := range []string{"a", "b", "c"} {
		closeOf(t, s, user)
	}
	_, position := disconnectsAfter(t, s, "")
	s = open(t, o)
	closeOf(t, s, "d")
	users, _ := disconnectsAfter(t, s, position)
	require.Equal(t, []string{"d"}, users)
}
