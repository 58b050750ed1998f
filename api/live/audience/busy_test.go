package audience

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestVisibleWakeUpsAreNotLost: watchers that wait while contacts change again and again end with the last change, long
// before all contacts are read again.
func TestVisibleWakeUpsAreNotLost(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		users := []string{"ann", "bea", "cat"}
		w.ping(users...)
		w.know("vic", users...)
		knows := make([]map[string]string, 4)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for k := range knows {
			knows[k] = map[string]string{}
			watcher := w.watch(k%2, feed.Query{Users: users})
			running.Go(func() {
				for ctx.Err() == nil {
					b, _ := w.await(ctx, watcher, 10)
					for _, u := range b.Users {
						knows[k][u.User] = shownAs(u.Published)
					}
				}
			})
		}
		var changing sync.WaitGroup
		for k, user := range users {
			changing.Go(func() {
				for n := range 100 + k {
					contacts := [][]string{nil, {"vic"}}[n%2]
					_ = w.store.SetContacts(ctx, "chat", user, contacts)
					if n%10 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		changing.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		cancel()
		running.Wait()
		for k := range knows {
			require.Equal(t, "map[ann:green bea:never cat:green]", fmt.Sprint(knows[k]))
		}
	})
}

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
func hooked(w *fixture) *hookStore {
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
	for _, user := range []string{"ann", "bea"} { // who is added, and who is watched
		t.Run(user, func(t *testing.T) {
			seen(t, func(t *testing.T, w *fixture) {
				h := hooked(w)
				watcher := w.follow("bea", "cat")
				time.Sleep(time.Second)
				h.hook = func() {
					w.know(user)
					w.leave(user)
				}
				b, err := watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}, Remove: []string{"cat"}})
				require.NoError(t, err)
				require.Contains(t, told(b), user+" never")
				require.NotContains(t, told(b), "left")
				require.Equal(t, 2, watcher.Len())
			})
		})
	}
}

// TestVisiblePollRace: what a user does after they removed the viewer is not told by a poll that has read the contacts
// of others before.
func TestVisiblePollRace(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		h := hooked(w)
		watcher := w.follow("ann", "bea")
		w.know("bea", "vic", "x")
		h.hook = func() {
			w.know("ann")
			w.leave("ann")
			w.arrive()
		}
		require.Equal(t, "ann never", told(w.poll(watcher)))
	})
}

// TestVisibleChangeFails: a watcher ends if contacts change all the time, or cannot be read, after users were added.
func TestVisibleChangeFails(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"they change", "they cannot be read"} {
		t.Run(what, func(t *testing.T) {
			seen(t, func(t *testing.T, w *fixture) {
				h := hooked(w)
				watcher := w.follow("bea", "cat")
				var again func()
				n := 0
				again = func() {
					n++
					w.know("bea", "vic", fmt.Sprint(n))
					h.hook = again
					w.store.Fails.Store(what != "they change")
				}
				h.hook = again
				_, err := watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}, Remove: []string{"cat"}})
				require.ErrorIs(t, err, store.ErrUnavailable)
				h.hook = nil
				w.store.Fails.Store(false)
				_, err = w.await(t.Context(), watcher, 10)
				require.ErrorIs(t, err, store.ErrUnavailable)
				_, err = watcher.Poll(t.Context(), 10)
				require.ErrorIs(t, err, store.ErrUnavailable)
				watcher.Close()
			})
		})
	}
}

// TestVisibleSlots: a poll does not wait for long for others who read contacts.
func TestVisibleSlots(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		watcher := w.watch(0, feed.Query{Users: []string{"ann"}})
		reads := w.servers[0].reads
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
	seen(t, func(t *testing.T, w *fixture) {
		w.know("ann", "vic")
		w.ping("ann")
		watcher := w.follow("ann")
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		texts := make(chan string, 100)
		go func() {
			for b, err := w.await(ctx, watcher, 10); err == nil; b, err = w.await(ctx, watcher, 10) {
				texts <- told(b)
			}
			close(texts)
		}()
		synctest.Wait()
		asked := w.store.Pairs.Load()
		w.know("ann", "vic", "y")
		require.Equal(t, asked+1, w.store.Pairs.Load(), "at once")
		for k := range 100 {
			w.set("ann", "vic", fmt.Sprint(k))
			time.Sleep(50 * time.Millisecond)
		}
		require.LessOrEqual(t, w.store.Pairs.Load()-asked, int64(5*time.Second/contactsEvery)+2)
		began := time.Now()
		w.set("ann")
		w.leave("ann")
		require.Equal(t, "ann never", <-texts, "not what ann did then")
		require.LessOrEqual(t, time.Since(began), contactsEvery+100*time.Millisecond, "when the feed was read")
		cancel()
		_, more := <-texts
		require.False(t, more)
	})
}
