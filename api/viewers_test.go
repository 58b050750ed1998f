package api

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/feed"
)

// TestVisibleWakeUpsAreNotLost: watchers that wait while contacts change again and again end with the last change, long
// before all contacts are read again.
func TestVisibleWakeUpsAreNotLost(t *testing.T) {
	seen(t, func(t *testing.T, w *seenWorld) {
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
					b, _ := watcher.Next(ctx, 10)
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
					if w.store.SetContacts(ctx, "chat", user, contacts) == nil {
						w.servers[n%2].signalContacts(ctx, "chat", user)
					}
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
