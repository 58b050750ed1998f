package api

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// hookStore calls a function after contacts were read, once. What really happens at that moment cannot be provoked.
type hookStore struct {
	store.Store
	hook func()
}

func (s *hookStore) AreContacts(ctx context.Context, namespace string, pairs []store.ContactPair) ([]bool, error) {
	are, err := s.Store.AreContacts(ctx, namespace, pairs)
	if hook := s.hook; hook != nil {
		s.hook = nil
		hook()
	}
	return are, err
}

// hooked returns a world whose store calls hooks, where vic sees ann and bea.
func hooked(w *seenWorld) *hookStore {
	h := &hookStore{Store: w.store.Store}
	w.store.Store = h
	for _, user := range []string{"ann", "bea"} {
		w.know(user, "vic")
		w.ping(user)
	}
	return h
}

// TestVisibleChangeRace: what users do after they removed the viewer is not told in the response to a change that has
// read their contacts before.
func TestVisibleChangeRace(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string][]string{"added": {"ann"}, "watched": {"bea"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSeenWorld(t, func(t *testing.T, w *seenWorld) {
				h := hooked(w)
				watcher := w.watch(0, feed.Query{Users: []string{"bea", "cat"}})
				w.poll(watcher)
				time.Sleep(time.Second)
				h.hook = func() {
					w.know(hide[0])
					w.leave(hide[0])
				}
				b, err := watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}, Remove: []string{"cat"}})
				require.NoError(t, err)
				require.Contains(t, told(b), hide[0]+" never")
				require.NotContains(t, told(b), "left")
				require.Equal(t, 2, watcher.Len())
			})
		})
	}
}

// TestVisibleChangeFails: a change whose contacts change all the time, or cannot be read after the users were added,
// fails and has no effect. So does a poll.
func TestVisibleChangeFails(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []bool{false, true} {
		t.Run(fmt.Sprint(unreadable), func(t *testing.T) {
			t.Parallel()
			inSeenWorld(t, func(t *testing.T, w *seenWorld) {
				h := hooked(w)
				watcher := w.watch(0, feed.Query{Users: []string{"bea", "cat"}})
				w.poll(watcher)
				var again func()
				again = func() {
					w.know("bea", "vic", "y")
					h.hook = again
					w.store.fails.Store(unreadable)
				}
				h.hook = again
				_, err := watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}, Remove: []string{"cat"}})
				require.ErrorIs(t, err, store.ErrUnavailable)
				_, err = watcher.Poll(t.Context(), 10)
				require.ErrorIs(t, err, store.ErrUnavailable)
				h.hook = nil
				w.store.fails.Store(false)
				require.Equal(t, 2, watcher.Len())
				w.know("cat", "vic")
				w.ping("cat")
				w.leave("ann")
				require.Equal(t, []string{"cat green"}, w.settle(watcher), "cat is watched, ann is not")
				require.Len(t, w.servers[0].viewers.owners, 2)
			})
		})
	}
}

// TestVisibleChangeFailsFull: a watcher that had to make room for users, whose contacts then could not be read, ends.
func TestVisibleChangeFailsFull(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		h := hooked(w)
		users := []string{"bea"}
		for k := range store.MaxWatched - 1 {
			users = append(users, fmt.Sprint("u", k))
		}
		watcher := w.watch(0, feed.Query{Users: users})
		w.poll(watcher)
		h.hook = func() {
			w.know("bea", "vic", "y")
			w.store.fails.Store(true)
		}
		_, err := watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}, Remove: []string{"u1"}})
		require.ErrorIs(t, err, store.ErrUnavailable)
		w.store.fails.Store(false)
		_, err = watcher.Next(t.Context(), 10)
		require.ErrorIs(t, err, store.ErrUnavailable)
		_, err = watcher.Poll(t.Context(), 10)
		require.ErrorIs(t, err, store.ErrUnavailable)
	})
}

// TestVisibleSlots: a poll does not wait for long for others who read contacts.
func TestVisibleSlots(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		watcher := w.watch(0, feed.Query{Users: []string{"ann"}})
		reads := w.servers[0].viewers.reads
		for range cap(reads) {
			reads <- struct{}{}
		}
		began := time.Now()
		_, err := watcher.Poll(t.Context(), 10)
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.Equal(t, contactsSlot, time.Since(began))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = watcher.Poll(ctx, 10)
		require.ErrorIs(t, err, context.Canceled)
		<-reads
		require.Equal(t, "snapshot: ann never", told(w.poll(watcher)))
		require.Len(t, reads, cap(reads)-1)
	})
}

// TestVisibleReadings: a watcher reads contacts four times a second at most, whoever changes them as often. The first
// change is read at once, and what is removed is not told later than that.
func TestVisibleReadings(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("ann", "vic")
		w.ping("ann")
		watcher := w.watch(0, feed.Query{Users: []string{"ann"}})
		w.poll(watcher)
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		texts := make(chan string, 100)
		go func() {
			for b, err := watcher.Next(ctx, 10); err == nil; b, err = watcher.Next(ctx, 10) {
				texts <- told(b)
			}
			close(texts)
		}()
		synctest.Wait()
		asked := w.store.pairs.Load()
		w.know("ann", "vic", "y")
		require.Equal(t, asked+1, w.store.pairs.Load(), "at once")
		for k := range 100 {
			w.know("ann", "vic", fmt.Sprint(k))
			time.Sleep(50 * time.Millisecond)
		}
		require.LessOrEqual(t, w.store.pairs.Load()-asked, int64(5*time.Second/contactsEvery)+2)
		began := time.Now()
		w.know("ann")
		w.leave("ann")
		require.Equal(t, "ann never", <-texts, "not what ann did then")
		require.LessOrEqual(t, time.Since(began), contactsEvery)
		cancel()
		_, more := <-texts
		require.False(t, more)
	})
}

// TestVisibleRests: a watcher that tried again later after an error, and then was asked to read, does not spin when all
// contacts are due before that.
func TestVisibleRests(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("ann", "vic")
		w.ping("ann")
		watcher := w.watch(0, feed.Query{Users: []string{"ann"}}).(*visibleWatcher)
		w.poll(watcher)
		time.Sleep(time.Until(watcher.readAllAt) - contactsRetry/2)
		w.store.fails.Store(true)
		w.know("ann", "vic", "y")
		require.Empty(t, w.next(watcher, time.Millisecond))
		w.store.fails.Store(false)
		require.Empty(t, told(w.poll(watcher)))
		require.False(t, watcher.waitUntil().Before(watcher.readSoonest()))
		require.Zero(t, watcher.retryAt)
		before := w.store.pairs.Load()
		require.Empty(t, w.next(watcher, contactsRetry))
		require.Greater(t, w.store.pairs.Load(), before, "all are read when they are due")

		watcher.readAllAt = time.Now() // due while a signal has to wait
		watcher.readAfter = time.Now().Add(contactsEvery)
		require.Equal(t, watcher.readAfter, watcher.waitUntil())
	})
}

// TestVisibleCursorsNameUsers: a cursor is of the users who were named, also those who were told as never seen.
func TestVisibleCursorsNameUsers(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("ann", "vic")
		w.ping("ann")
		after := w.poll(w.watch(0, feed.Query{Users: []string{"sam"}})).Places
		w.know("ann")
		query := feed.Query{Users: []string{"ann", "sam"}, After: after}
		require.Equal(t, "reset: ann never, sam never", told(w.poll(w.watch(0, query))))
		w.know("ann", "vic")
		watcher := w.watch(0, feed.Query{Users: []string{"ann"}})
		w.poll(watcher)
		b, err := watcher.Change(t.Context(), feed.Change{Remove: []string{"ann"}})
		require.NoError(t, err)
		w.know("ann")
		b, err = watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}, After: b.Places})
		require.NoError(t, err)
		require.Equal(t, "ann never", told(b))
		require.Empty(t, told(w.poll(w.watch(1, feed.Query{Users: []string{"ann"}, After: b.Places}))))
	})
}
