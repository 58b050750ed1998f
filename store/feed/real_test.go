package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

// TestRealStore has watchers follow pings and leaves on the embedded store, while they reconnect between two hubs. Each
// ends with what the store holds.
func TestRealStore(t *testing.T) {
	s, err := filestore.Open(filestore.Options{Path: filepath.Join(t.TempDir(), "lastseen.db")})
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), []string{"chat"}))
	thresholds := lastseen.Thresholds{Green: time.Hour, Yellow: 2 * time.Hour}
	hubs := []*Hub{}
	for range 2 {
		h := New(Options{Store: s, Settings: func(string) Settings { return Settings{Thresholds: thresholds} }})
		runHub(t, h)
		hubs = append(hubs, h)
	}
	t.Cleanup(func() { s.Close() })

	users := []string{}
	for k := range 40 {
		users = append(users, fmt.Sprint("user", k))
	}
	var running sync.WaitGroup
	var written atomic.Bool
	for k := range 8 {
		running.Go(func() { readToTheEnd(t, hubs, users[4*k:4*k+4], &written, false, k) })
	}
	for k := range 4 {
		running.Go(func() { readToTheEnd(t, hubs, users[:32], &written, true, k) })
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		write := s.Ping
		if random.IntN(2) == 0 {
			write = s.Leave
		}
		at := lastseen.InstantOf(time.Now())
		_, err := write(t.Context(), "chat", []store.PresenceEvent{{User: users[random.IntN(32)], At: at}})
		require.NoError(t, err)
	}
	for _, user := range users { // later than all before
		at := lastseen.InstantOf(time.Now()).Add(2 * time.Second)
		_, err := s.Leave(t.Context(), "chat", []store.PresenceEvent{{User: user, At: at}})
		require.NoError(t, err)
		_, err = s.Ping(t.Context(), "chat", []store.PresenceEvent{{User: user, At: at + 1}})
		require.NoError(t, err)
	}
	written.Store(true)
	running.Wait()
}

// readToTheEnd reads until everything is written and all users are green, as they are in the end: by one watcher that
// changes which users it watches, or by ever new ones that continue on the other hub.
func readToTheEnd(t *testing.T, hubs []*Hub, users []string, written *atomic.Bool, changes bool, k int) {
	random := rand.New(rand.NewPCG(uint64(k), 3))
	view := map[string]Update{}
	var watched []string
	if !changes {
		watched = users
	}
	w, err := hubs[k%2].Watch(t.Context(), "chat", Query{Users: watched})
	var positions []store.Position
	take := func(b Batch) {
		positions = b.Positions
		for _, u := range b.Users {
			was, sent := view[u.User]
			wrong := sent && (was.At > u.At || !changes && was.Same(u.Published)) || !slices.Contains(watched, u.User)
			if wrong || b.Reset {
				t.Errorf("older, sent again, not watched or a reset: %v after %v", u, was)
			}
			view[u.User] = u
		}
	}
	for deadline := time.Now().Add(time.Minute); err == nil && !t.Failed() && time.Now().Before(deadline); k++ {
		ends := written.Load()
		if changes {
			c := Change{Add: users}
			if !ends {
				c = Change{Add: pick(random, users), Remove: pick(random, users)}
			}
			for _, user := range c.Remove {
				delete(view, user)
			}
			watched = slices.DeleteFunc(watched, func(user string) bool { return slices.Contains(c.Remove, user) })
			watched = append(watched, c.Add...)
			var b Batch
			if b, err = w.Change(t.Context(), c); err == nil {
				take(b)
			}
		}
		for range 1 + random.IntN(3) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			if b, err := await(ctx, w, 1+random.IntN(4)); err == nil {
				take(b)
			}
			cancel()
		}
		if ends && allGreen(view, users) {
			w.Close()
			return
		}
		if !changes {
			w.Close()
			w, err = hubs[k%2].Watch(t.Context(), "chat", Query{Users: users, After: positions})
		}
	}
	t.Errorf("not the end: %v, error: %v", view, err)
}

// pick returns up to four of some users.
func pick(random *rand.Rand, from []string) (users []string) {
	for range random.IntN(5) {
		users = append(users, from[random.IntN(len(from))])
	}
	return users
}

func allGreen(view map[string]Update, users []string) bool {
	for _, user := range users {
		if view[user].Status != lastseen.Green {
			return false
		}
	}
	return true
}

// pingingStore has a user ping before each list.
type pingingStore struct {
	store.Store
	user string
}

func (s *pingingStore) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	at := lastseen.InstantOf(time.Now()).Add(time.Second)
	if _, err := s.Ping(ctx, namespace, []store.PresenceEvent{{User: s.user, At: at}}); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, namespace, q)
}

// laterStore is a store whose clock is hours ahead of what is published.
type laterStore struct{ store.Store }

func (s laterStore) Now(ctx context.Context) (lastseen.Instant, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(3 * time.Hour), err
}

// greenSnapshot has users ping the embedded store, and returns the snapshot of green users through another one on it.
func greenSnapshot(t *testing.T, through func(store.Store) store.Store, users ...string) []string {
	t.Helper()
	s, err := filestore.Open(filestore.Options{Path: filepath.Join(t.TempDir(), "lastseen.db")})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	thresholds := lastseen.Thresholds{Green: time.Hour, Yellow: 2 * time.Hour}
	h := New(Options{
		Store: through(s), Settings: func(string) Settings { return Settings{Thresholds: thresholds} },
	})
	runHub(t, h)
	for _, user := range users {
		at := lastseen.InstantOf(time.Now())
		_, err = s.Ping(t.Context(), "chat", []store.PresenceEvent{{User: user, At: at}})
		require.NoError(t, err)
	}
	w, err := h.Watch(t.Context(), "chat", Query{Everyone: true, Statuses: []lastseen.Status{lastseen.Green}})
	require.NoError(t, err)
	defer w.Close()
	b, err := w.Poll(t.Context(), 10)
	require.NoError(t, err)
	return names(b)
}

// TestStatusesAsPublished: a user who is published as green, but not for much longer, is in the snapshot: a change to
// grey follows, which says that the user was green.
func TestStatusesAsPublished(t *testing.T) {
	later := func(s store.Store) store.Store { return laterStore{s} }
	require.Equal(t, []string{"ann green"}, greenSnapshot(t, later, "ann"))
}

// TestStatusesWhileUsersPing: a green user who pings while the green users are listed is in the snapshot. That ping is
// not a change, so that nothing else would have the user.
func TestStatusesWhileUsersPing(t *testing.T) {
	pinging := func(s store.Store) store.Store { return &pingingStore{s, "ann"} }
	require.ElementsMatch(t, []string{"ann green", "bob green"}, greenSnapshot(t, pinging, "ann", "bob"))
}
