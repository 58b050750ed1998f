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

// TestContactNotes: what is noted before a turn is there to be taken, and what is noted after that ends the turn.
func TestContactNotes(t *testing.T) {
	t.Parallel()
	v, n, other := newViewers(), &contactNotes{}, &contactNotes{}
	v.join("chat", n, "ann", "bob")
	v.join("chat", other, "bob")
	v.changed("chat", "ann")
	turn, done := n.turn(t.Context())
	var due contactsDue
	n.take(&due, "vic")
	require.Equal(t, contactsDue{owners: map[string]struct{}{"ann": {}}}, due)
	require.False(t, n.waits())
	require.NoError(t, turn.Err())
	v.changed("games", "bob")
	v.changed("games", "")
	require.NoError(t, turn.Err())
	v.changed("chat", "bob")
	require.ErrorIs(t, turn.Err(), context.Canceled)
	require.True(t, n.waits())
	require.True(t, other.waits())
	done()
	v.changed("", "")
	v.leave("chat", n, "ann", "bob")
	v.changed("chat", "bob")
	due = contactsDue{}
	n.take(&due, "vic")
	require.Equal(t, contactsDue{all: true, owners: map[string]struct{}{"bob": {}, "vic": {}}}, due)
	v.end("chat", n)
	v.leave("chat", other, "bob")
	v.end("chat", other)
	require.Empty(t, v.owners)
	require.Empty(t, v.spaces)
}

// TestVisibleWakeUpsAreNotLost: watchers that wait while contacts change again and again end with the last change, long
// before all contacts are read again.
func TestVisibleWakeUpsAreNotLost(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
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
