package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// removeEmpty reports whether RemoveEmpty removed a namespace.
func removeEmpty(t require.TestingT, s store.Store, namespace string) bool {
	removed, err := s.RemoveEmpty(context.Background(), namespace)
	require.NoError(t, err)
	return removed
}

// existing returns the names of all namespaces.
func existing(t require.TestingT, s store.Store) (names []string) {
	for _, info := range namespaces(t, s, 1000) {
		names = append(names, info.Name)
	}
	return names
}

func testRemoveEmpty(t *testing.T, s store.Store) {
	ctx := context.Background()
	require.False(t, removeEmpty(t, s, ns), "it does not exist")
	require.NoError(t, s.Register(ctx, []string{"registered"}))
	write(s.Ping).in(t, "other", base, "alice")
	for i, w := range writes(s) {
		w.in(t, ns, base, "alice", "bob")
		for _, user := range []string{"alice", "bob"} {
			require.False(t, removeEmpty(t, s, ns), "a user is in it")
			require.Contains(t, existing(t, s), ns)
			forget(t, s, user)
		}
		require.Contains(t, existing(t, s), ns, "an empty namespace exists until it is removed")
		require.True(t, removeEmpty(t, s, ns))
		require.False(t, removeEmpty(t, s, ns), "it is gone already")
		require.Equal(t, []string{"other", "registered"}, existing(t, s))

		again := base + lastseen.Instant(i) - 9
		states := writes(s)[1-i].in(t, ns, again, "carol")
		require.Equal(t, []lastseen.State{{At: again, Left: i == 0}}, states)
		require.Equal(t, []store.NamespaceInfo{{Name: ns, Newest: again}}, namespaces(t, s, 1), "it exists again")
		forget(t, s, "carol")
	}
	require.True(t, removeEmpty(t, s, "registered"), "the caller decides which ones stay")
	require.Equal(t, lastseen.State{At: base}, ping(t, s, "alice", base))
}

// keepRemoving removes the namespace, if it is empty, again and again until stop is called.
func keepRemoving(t *testing.T, s store.Store) (stop func()) {
	var removing sync.WaitGroup
	stopped := make(chan struct{})
	removing.Go(func() {
		for {
			select {
			case <-stopped:
				return
			default:
			}
			if _, err := s.RemoveEmpty(context.Background(), ns); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() {
		close(stopped)
		removing.Wait()
	}
}

// testRemoveEmptyWriters removes a namespace again and again while users come and go. Every write that returned is
// there afterwards.
func testRemoveEmptyWriters(t *testing.T, s store.Store) {
	const writers, rounds = 4, 40
	var writing sync.WaitGroup
	stop := keepRemoving(t, s)
	for w := range writers {
		writing.Go(func() {
			user, sighting := fmt.Sprint(w), []store.Sighting{{User: fmt.Sprint(w), At: base}}
			for i := range rounds {
				write, want := s.Ping, here(base)
				if (w+i)%2 == 0 {
					write, want = s.Leave, left(base)
				}
				got, err := write(context.Background(), ns, sighting)
				if err != nil || got[0] != want {
					t.Errorf("%v, %v", got, err)
					return
				}
				found, err := s.Lookup(context.Background(), ns, []string{user})
				if err != nil || found[0] != want {
					t.Errorf("looked up %v, %v", found, err)
					return
				}
				if i == rounds-1 {
					return
				}
				if err := s.Forget(context.Background(), ns, user); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	stop()
	require.Len(t, remaining(t, s), writers)
	require.Equal(t, []string{ns}, existing(t, s))
	require.False(t, removeEmpty(t, s, ns))
}
