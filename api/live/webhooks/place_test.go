package webhooks

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestLease: a server without the lease delivers nothing, and one that gets it goes on from the place that is kept.
func TestLease(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		f.send(comes("alice"))
		require.Equal(t, []string{"changed alice"}, f.got())
		f.leave()
		require.Equal(t, f.watchers, f.closed)
		require.Equal(t, []Stats{{Webhook: "app"}}, m.Stats())
		f.back()
		require.Empty(t, f.got())
		require.Equal(t, []store.Position{"2"}, f.after)
		f.send(comes("bob"))
		require.Equal(t, []string{"changed bob"}, f.got())
	})
}

// TestFrozen: what was tried once is sent by another server with the same bytes under the same ID, before all else.
func TestFrozen(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.replies(status(500))
		f.send(comes("alice"))
		synctest.Wait()
		first := f.requests[0]
		f.away(0)
		f.got()
		f.replies(status(200))
		time.Sleep(maxRetry)
		synctest.Wait()
		require.Equal(t, first.id, f.requests[0].id)
		require.Equal(t, first.body, f.requests[0].body)
		f.send(comes("bob"))
		require.Equal(t, []string{"changed alice", "changed bob"}, f.got())
	})
}

// TestNotNoted: an event that was accepted, but not noted as such, is sent again as it was. One that cannot be noted is
// not sent.
func TestNotNoted(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.replies(func(*http.Request, string) (int, http.Header, error) {
			f.locked(func() { f.noteErr = store.ErrUnavailable })
			f.replies(status(200))
			return 200, nil, nil
		})
		f.send(comes("alice"))
		time.Sleep(followRetry)
		synctest.Wait()
		require.Len(t, f.requests, 2)
		require.Equal(t, f.requests[0].id, f.requests[1].id)
		require.Equal(t, f.requests[0].body, f.requests[1].body)
		f.got()
		f.locked(func() { f.noteErr = store.ErrUnavailable })
		f.send(comes("bob"))
		require.Empty(t, f.got())
		time.Sleep(followRetry)
		synctest.Wait()
		require.Equal(t, []store.Position{"2"}, f.after, "it is read again")
	})
}

// TestSnapshotGoesOn: a snapshot that another server began is not begun again.
func TestSnapshotGoesOn(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.lose()
		f.got()
		f.locked(func() { f.feedLost = false })
		page := func(more bool, user string) feed.Batch {
			return feed.Batch{Page: true, More: more, Users: []feed.Update{update(user, "", lastseen.Green)}}
		}
		kept, err := f.Note(t.Context(), "webhook-app", "chat")
		require.NoError(t, err)
		f.leave()
		n := store.Note{Version: "of another server", Text: []byte(`{"Positions":["7"],"Paging":true}`)}
		set, err := f.SetNote(t.Context(), "webhook-app", "chat", kept.Version, n)
		require.NoError(t, err)
		require.True(t, set)
		f.back()
		require.Equal(t, []store.Position{"7"}, f.after)
		f.send(page(true, "bob"), page(false, "carol"))
		synctest.Wait()
		f.send(comes("dora"))
		require.Equal(t, []string{"snapshot bob", "snapshot carol", "changed dora"}, f.got())
	})
}

// TestMoved: a server that was suspended does not move back what another one delivered meanwhile.
func TestMoved(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.replies(func(*http.Request, string) (int, http.Header, error) {
			kept, err := f.Note(context.Background(), "webhook-app", "chat")
			require.NoError(t, err)
			n := store.Note{Version: "of another server", Text: []byte(`{"Positions":["7"]}`)}
			set, err := f.SetNote(context.Background(), "webhook-app", "chat", kept.Version, n)
			require.NoError(t, err)
			require.True(t, set)
			f.replies(status(200))
			return 200, nil, nil
		})
		f.send(comes("alice"))
		require.Equal(t, []string{"changed alice"}, f.got())
		time.Sleep(followRetry)
		synctest.Wait()
		require.Equal(t, []store.Position{"7"}, f.after)
		require.Contains(t, f.log.String(), "another server delivers")
	})
}

// TestHeldPlace: what is held is read again by the next server, and held for the rest of its time.
func TestHeldPlace(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.use("2", 4*time.Minute)
		f.send(comes("alice"))
		time.Sleep(time.Minute)
		f.send(comes("bob"))
		time.Sleep(time.Minute)
		f.away(0)
		require.Equal(t, []store.Position{"1"}, f.after)
		began := time.Now()
		again := comes("alice")
		again.Users[0].Recorded = lastseen.InstantOf(began.Add(-2 * time.Minute))
		f.send(again, comes("bob"))
		time.Sleep(2*time.Minute - time.Millisecond)
		require.Empty(t, f.got())
		time.Sleep(time.Millisecond)
		require.Equal(t, []string{"changed alice"}, f.got())
		f.away(0)
		require.NotEqual(t, []store.Position{"1"}, f.after)
	})
}

// TestQuietPlace: the place moves although nothing is reported, so that the feed still has it when it is needed.
func TestQuietPlace(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		for range 3 {
			f.send(feed.Batch{Users: []feed.Update{update("alice", lastseen.Green, lastseen.Yellow)}})
		}
		time.Sleep(saveEvery)
		require.Empty(t, f.got())
		f.away(0)
		require.Equal(t, []store.Position{"4"}, f.after)
	})
}

// TestNewNamespace: one that begins while a server delivers begins with a snapshot, and one that was deleted while none
// did is followed for a while.
func TestNewNamespace(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		f.locked(func() { f.names = []string{"chat", "chat-2"} })
		time.Sleep(listEvery + lookEvery)
		require.Equal(t, []string{"snapshot zoe"}, f.got())
		f.locked(func() { f.names, f.feedLost = nil, true })
		f.away(0)
		require.Equal(t, 2, m.Stats()[0].Namespaces)
		require.ElementsMatch(t, []string{"reset", "snapshot zoe", "reset", "snapshot zoe"}, f.got())
		time.Sleep(endAfter + listEvery + lookEvery)
		synctest.Wait()
		require.Zero(t, m.Stats()[0].Namespaces)
		kept, err := f.Notes(t.Context(), "webhook-app")
		require.NoError(t, err)
		require.Equal(t, []string{""}, kept, "nothing of them is kept")
	})
}

// TestLostNotes: if the store lost what is kept, there is a reset.
func TestLostNotes(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string][]string{"place": {"chat"}, "all": {"chat", ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, f *fixture, _ *Manager) {
				for _, key := range forget {
					kept, err := f.Note(t.Context(), "webhook-app", key)
					require.NoError(t, err)
					_, err = f.SetNote(t.Context(), "webhook-app", key, kept.Version, store.Note{})
					require.NoError(t, err)
				}
				f.send(comes("alice"))
				time.Sleep(feedResetEvery)
				require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
			})
		})
	}
}

// TestRestoredPlace: if the store may have gone back, there is a reset, and 410 counts as before. What is kept then
// counts again.
func TestRestoredPlace(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, m *Manager) {
		f.send(comes("alice"))
		require.Equal(t, []string{"changed alice"}, f.got())
		f.leave()
		f.restore(t)
		f.back()
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
		f.leave()
		f.back()
		f.send(comes("bob"))
		require.Equal(t, []string{"changed bob"}, f.got())

		f.restore(t)
		time.Sleep(noteEvery + listEvery + 2*lookEvery)
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got(), "also while nothing happens")
		f.restore(t)
		f.send(comes("bob"))
		require.Empty(t, f.got())
		time.Sleep(followRetry)
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got(), "instead of what cannot be noted; it need not wait")

		f.replies(status(http.StatusGone))
		f.send(comes("carol"))
		synctest.Wait()
		time.Sleep(noteEvery)
		f.leave()
		f.restore(t)
		f.replies(status(200))
		f.got()
		f.back()
		require.Empty(t, f.got())
		require.NoError(t, m.Enable(t.Context(), "app"))
		time.Sleep(lookEvery)
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
	})
}

// TestUnknownPlace: a place that cannot be read is lost.
func TestUnknownPlace(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, f *fixture, _ *Manager) {
		f.leave()
		kept, err := f.Note(t.Context(), "webhook-app", "chat")
		require.NoError(t, err)
		_, err = f.SetNote(t.Context(), "webhook-app", "chat", kept.Version, store.Note{Version: "1", Text: []byte("{")})
		require.NoError(t, err)
		f.back()
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
	})
}
