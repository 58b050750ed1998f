package feed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestRaw: a raw watcher gets each batch at once, and users who changed and changed back. Others do not.
func TestRaw(t *testing.T) {
	for _, raw := range []bool{false, true} {
		inWorld(t, 1, func(w *world) {
			watcher := w.watch(Query{Users: []string{"ann", "bob"}, Raw: raw})
			w.poll(watcher, 10)
			_, err := watcher.Change(w.t.Context(), Change{Add: []string{"cat"}})
			require.NoError(w.t, err)
			w.set("ann", lastseen.Green)
			require.Equal(w.t, []string{"ann green"}, names(*w.next(watcher, 10, time.Second)))
			w.set("bob", lastseen.Green)
			began := time.Now()
			require.Equal(w.t, []string{"bob green"}, names(*w.next(watcher, 10, time.Second)))
			require.Equal(w.t, raw, time.Since(began) < batchEvery)
			w.next(watcher, 10, 2*time.Second)
			w.set("ann", lastseen.Yellow)
			w.set("ann", lastseen.Green)
			w.set("cat", lastseen.Yellow)
			w.set("cat", lastseen.Grey)
			if b := w.next(watcher, 10, time.Second); raw {
				require.Equal(w.t, []string{"ann green", "cat grey"}, names(*b))
			} else {
				require.Nil(w.t, b)
			}
		})
	}
}
