package coalesce

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestMergeDuplicates: when a store retried the first batch, the second one finished before it.
func TestMergeDuplicates(t *testing.T) {
	states := []lastseen.State{{At: 9}, {At: 2}, {At: 5}}
	pings := newCoalescer(Pings, Options{}, nil, nil, func(s store.PresenceEvent) string { return s.User })
	pings.merge = lastseen.Merge
	batch := []store.PresenceEvent{{User: "alice", At: 9}, {User: "bob", At: 2}, {User: "alice", At: 5}}
	pings.mergeDuplicates(batch, states)
	require.Equal(t, []lastseen.State{{At: 9}, {At: 2}, {At: 9}}, states)
}

// TestGoneCallerLeavesNoAnswer: the answers to callers that are gone reach no other caller.
func TestGoneCallerLeavesNoAnswer(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		r.ping("chat", "first")
		for range 20 {
			r.pingUntil(ctx, "chat", "gone")
		}
		r.letGo(1)
		cancel()
		synctest.Wait()
		later := make([]*result, 20)
		for i := range later {
			later[i] = r.ping("chat", "bob")
		}
		r.letGo(1)
		for _, c := range later {
			require.False(r, c.done, "its batch is on its way")
		}
		r.letGo(1)
		r.answered(later...)
	})
}

// TestImportLeavesRoom: calls about many users do not fill a queue so far that calls about one user are refused.
func TestImportLeavesRoom(t *testing.T) {
	inBubble(t, Options{QueueSize: 8, NamespaceSize: 2}, []string{""}, func(r *rig) {
		r.ping("chat", "first")
		imported := r.ping("bulk", crowd(5)...)
		require.ErrorIs(r, r.ping("bulk", crowd(3)...).err, store.ErrOverloaded)
		alone, pair := r.ping("chat", "alice"), r.ping("chat", "bob", "carol")
		require.ErrorIs(r, r.ping("chat", "dave").err, store.ErrOverloaded, "now it is full")
		r.letGo(2)
		r.answered(imported, alone, pair)
	})
}
