package coalesce

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestFullBatchEndsATurn: a namespace that fills a whole batch has had its turn, too.
func TestFullBatchEndsATurn(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 2, BatchSize: 2}, []string{""}, func(r *rig) {
		ctx := context.Background()
		r.ping(ctx, "bulk", crowd(7)...)
		r.ping(ctx, "small", "alice")
		for range 5 {
			r.letGo()
		}
		require.Equal(r, []string{"bulk:2", "bulk:2", "small:1", "bulk:2", "bulk:1"}, r.sizes())
	})
}

// TestMergeDuplicates: when a store retried the first batch, the second one finished before it.
func TestMergeDuplicates(t *testing.T) {
	states := []lastseen.State{{At: 9}, {At: 2}, {At: 5}}
	mergeDuplicates([]store.Sighting{{User: "alice", At: 9}, {User: "bob", At: 2}, {User: "alice", At: 5}}, states)
	require.Equal(t, []lastseen.State{{At: 9}, {At: 2}, {At: 9}}, states)
}

// TestGoneCallerLeavesNoAnswer: the answers to callers that are gone reach no other caller.
func TestGoneCallerLeavesNoAnswer(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		r.ping(context.Background(), "chat", "first")
		for range 20 {
			r.ping(ctx, "chat", "gone")
		}
		r.letGo()
		cancel()
		synctest.Wait()
		later := make([]*result, 20)
		for i := range later {
			later[i] = r.ping(context.Background(), "chat", "bob")
		}
		r.letGo()
		for _, c := range later {
			require.False(r, c.done, "its batch is on its way")
		}
		r.letGo()
		r.answered(later...)
	})
}

func TestCloseWaitsForLookups(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		r.drains(r.lookup("chat", "alice"), r.lookup("game", "bob"))
	})
}

// TestTooFewStates: when states are missing, all calls of the batch fail. Handing out those that came would give some
// callers the states of other users.
func TestTooFewStates(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		r.fake.broken["short"] = errShort
		r.ping(context.Background(), "chat", "first")
		alice, bob := r.ping(context.Background(), "short", "alice"), r.ping(context.Background(), "short", "bob")
		good := r.ping(context.Background(), "chat", "carol")
		r.letGo()
		r.letGo()
		require.ErrorContains(r, alice.err, "1 states for 2 users")
		require.ErrorContains(r, bob.err, "1 states for 2 users")
		r.answered(good)
	})
}

// TestImportLeavesRoom: calls about many users do not fill a queue so far that calls about one user are refused.
func TestImportLeavesRoom(t *testing.T) {
	inBubble(t, Options{QueueSize: 8, NamespaceSize: 2}, []string{""}, func(r *rig) {
		ctx := context.Background()
		r.ping(ctx, "chat", "first")
		imported := r.ping(ctx, "bulk", crowd(5)...)
		require.ErrorIs(r, r.ping(ctx, "bulk", crowd(3)...).err, store.ErrOverloaded)
		alone, pair := r.ping(ctx, "chat", "alice"), r.ping(ctx, "chat", "bob", "carol")
		require.ErrorIs(r, r.ping(ctx, "chat", "dave").err, store.ErrOverloaded, "now it is full")
		r.letGo()
		r.letGo()
		r.answered(imported, alone, pair)
	})
}
