package audience

import (
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestContinuesWhileMemoryIsBehind: a client that comes back, or adds users after a cursor, is not sent what these did
// while the viewer did not see them, although the feed is read later than their contacts.
func TestContinuesWhileMemoryIsBehind(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"resume", "change", "go on"} {
		t.Run(how, func(t *testing.T) {
			seen(t, func(t *testing.T, w *fixture) {
				w.know("ann", "vic")
				w.ping("ann")
				watcher, other := w.follow("ann"), w.follow("bea")
				positions := w.poll(watcher).Positions
				w.know("ann")
				time.Sleep(time.Minute)
				w.leave("ann")
				w.arrive()
				readFeed()
				synctest.Wait()
				w.ping("ann")
				w.set("ann", "vic")
				switch how {
				case "resume":
					require.Empty(t, told(w.poll(w.watch(0, feed.Query{Users: []string{"ann"}, After: positions}))))
				case "change":
					b, err := other.Change(t.Context(), feed.Change{Add: []string{"ann"}, After: positions})
					require.NoError(t, err)
					require.Empty(t, told(b))
				default:
					require.Empty(t, w.settle(watcher))
				}
			})
		})
	}
}

// TestContinuesAfterRemoval: a client that comes back learns that it does not see a user any longer.
func TestContinuesAfterRemoval(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("ann", "vic")
		w.ping("ann")
		positions := w.poll(w.follow("ann")).Positions
		w.know("ann")
		first, positions := w.resume(positions, "ann")
		require.Equal(t, "ann never", first)
		first, _ = w.resume(positions, "ann")
		require.Empty(t, first)
	})
}

// TestContinuesAfterHiding: a client that comes back is not told that a user is gone who is seen again meanwhile.
func TestContinuesAfterHiding(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		h := hooked(w)
		positions := w.poll(w.follow("ann")).Positions
		w.know("ann")
		time.Sleep(time.Second)
		h.hook = func() { w.know("ann", "vic") }
		watcher := w.watch(0, feed.Query{Users: []string{"ann"}, After: positions})
		require.Empty(t, told(w.poll(watcher)))
		require.Empty(t, w.settle(watcher))
	})
}

// TestChangeAfterLostFeed: users who are added while the feed has begun again are sent, and nobody else as never seen.
func TestChangeAfterLostFeed(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		users := []string{"ann", "bea"}
		write := func() {
			for _, user := range users {
				w.set(user, "vic")
				w.ping(user)
			}
			w.arrive()
		}
		write()
		watcher := w.follow("ann")
		require.NoError(t, w.store.DeleteNamespace(t.Context(), "chat"))
		write()
		time.Sleep(2 * time.Second)
		b, err := watcher.Change(t.Context(), feed.Change{Add: []string{"bea"}})
		require.NoError(t, err)
		require.Equal(t, "bea green", told(b))
		require.Empty(t, w.settle(watcher))
	})
}

// failing is a store that does not have its secret, or no snapshots, at times: real ones do not fail on demand.
type failing struct {
	store.Store
	secret, snapshots bool
}

func (s *failing) Secret(ctx context.Context) ([32]byte, error) {
	if s.secret {
		return [32]byte{}, fmt.Errorf("%w: no secret", store.ErrUnavailable)
	}
	return s.Store.Secret(ctx)
}

func (s *failing) SnapshotChanges(ctx context.Context, namespace string, users []string) (store.Snapshot, error) {
	if s.snapshots {
		return store.Snapshot{}, fmt.Errorf("%w: no snapshots", store.ErrUnavailable)
	}
	return s.Store.SnapshotChanges(ctx, namespace, users)
}

// TestSecretFails: a cursor that nobody sealed changes no key, also while the secret cannot be read again.
func TestSecretFails(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("ann", "vic")
		w.ping("ann")
		s := &failing{Store: w.store.Store}
		w.store.Store = s
		watcher := w.follow("ann")
		time.Sleep(2 * time.Second)
		s.secret = true
		after := []store.Position{"AAAAAAAAAAAAAAAA"}
		b, err := watcher.Change(t.Context(), feed.Change{Add: []string{"bea"}, After: after})
		require.NoError(t, err)
		require.Equal(t, "bea never", told(b))
		sealed, err := base64.RawURLEncoding.DecodeString(string(b.Positions[0]))
		require.NoError(t, err)
		_, ok := secret{}.open(sealed, watcher.bound, 2)
		require.False(t, ok)
		s.secret = false
		first, _ := w.resume(b.Positions, "ann", "bea")
		require.Empty(t, first)
	})
}

// TestChangeFailsInTheMiddle: a watcher that may watch others than it says ends.
func TestChangeFailsInTheMiddle(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		s := &failing{Store: w.store.Store}
		w.store.Store = s
		w.know("ann", "vic")
		w.ping("ann")
		watcher := w.follow("bea")
		s.snapshots = true
		_, err := watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}})
		require.ErrorIs(t, err, store.ErrUnavailable)
		s.snapshots = false
		_, err = w.await(t.Context(), watcher, 10)
		require.ErrorIs(t, err, store.ErrUnavailable)
	})
}

// TestCursorAge: a cursor is valid for some minutes, whatever strangers do.
func TestCursorAge(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("ann", "vic")
		w.ping("ann")
		watcher := w.follow("ann")
		position := w.poll(watcher).Positions
		time.Sleep(maxCursorAge - time.Second)
		w.ping("sam")
		first, _ := w.resume(position, "ann")
		require.Equal(t, "ann grey", first)
		time.Sleep(2 * time.Second)
		first, _ = w.resume(position, "ann")
		require.Equal(t, "reset: ann grey", first)
	})
}

// TestCursorStateEncoding: what is sealed comes back, and its width depends on the number of users and positions alone.
func TestCursorStateEncoding(t *testing.T) {
	widths := map[int]bool{}
	for _, position := range []store.Position{"-", "1-0/x", "1764310000000-18446744073709551615/0123456789abcdef-99"} {
		positions := []store.Position{position, "b"}
		p := cursorState{asOf: 7, list: [8]byte{1}, shown: make([]byte, shownWidth(3)), positions: positions}
		p.shown[0] = 5
		b := p.encode()
		widths[len(b)] = true
		got, ok := decode(b, 3)
		require.True(t, ok)
		require.Equal(t, p, got)
		_, ok = decode(b[:len(b)-1], 3)
		require.False(t, ok)
		_, ok = decode(b[:8], 3)
		require.False(t, ok)
	}
	require.Len(t, widths, 1)
}
