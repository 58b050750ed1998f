package coalesce

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// TestLoadIsTheWait follows the load of a store that takes a batch in turn: it is how long the oldest call of a batch
// waited, as a part of the longest wait, and 0 when nothing is left.
func TestLoadIsTheWait(t *testing.T) {
	inBubble(t, Options{Timeout: 2 * time.Second}, []string{""}, func(r *rig) { // calls wait for 3 seconds at most
		require.Zero(r, r.s.Load())
		first, second := r.ping("chat", "alice"), r.ping("chat", "bob")
		time.Sleep(1500 * time.Millisecond)
		third := r.ping("chat", "carol")
		r.letGo(1)
		require.InDelta(r, 0, r.s.Load(), 0.001, "the first did not wait")
		fourth := r.ping("chat", "dave")
		time.Sleep(300 * time.Millisecond)
		r.letGo(1)
		require.InDelta(r, 0.5, r.s.Load(), 0.001, "the second waited 1.5 s")
		time.Sleep(300 * time.Millisecond)
		fifth := r.ping("chat", "erin")
		r.letGo(1)
		require.InDelta(r, 0.1, r.s.Load(), 0.001, "the fourth waited 0.3 s")
		r.letGo(1)
		r.answered(first, second, third, fourth, fifth)
		require.Zero(r, r.s.Load(), "nothing is left")
	})
}

// TestOverdueCallsAreFullLoad: a call that waited too long to be sent counts as one that waited for the longest time.
func TestOverdueCallsAreFullLoad(t *testing.T) {
	inBubble(t, Options{Timeout: time.Second, NamespaceSize: 1, BatchSize: 1}, []string{""}, func(r *rig) {
		r.ping("chat", "alice")
		r.ping("chat", "bob")
		overdue := r.ping("chat", "carol")
		for _, user := range []string{"dave", "erin"} {
			time.Sleep(900 * time.Millisecond)
			r.ping("chat", user)
			r.letGo(1)
		}
		require.ErrorIs(r, overdue.err, store.ErrUnavailable)
		require.InDelta(r, 0.6, r.s.Load(), 0.001, "that of bob's batch")
		r.letGo(1)
		require.InDelta(r, 1, r.s.Load(), 0.001, "that of dave's batch, before which carol's call failed")
		r.letGo(1)
	})
}

// TestFullQueueIsLoad checks that the part of the queue that is taken is load, too.
func TestFullQueueIsLoad(t *testing.T) {
	inBubble(t, Options{QueueSize: 4}, []string{""}, func(r *rig) {
		r.ping("chat", "first")
		require.Zero(r, r.s.Load())
		for i, user := range []string{"alice", "bob", "carol"} {
			r.ping("chat", user)
			require.InDelta(r, float64(i+1)/4, r.s.Load(), 0.001)
		}
		r.letGo(1)
		require.Zero(r, r.s.Load())
		r.letGo(1)
	})
}

// TestDownIsNotLoad checks that a server that does not respond, or only with errors, is not loaded, whatever waits, and
// that it is when it responds again.
func TestDownIsNotLoad(t *testing.T) {
	inBubble(t, Options{Timeout: 2 * time.Second, QueueSize: 4}, []string{""}, func(r *rig) {
		r.fake.broken["chat"] = store.ErrUnavailable
		for range 3 {
			r.ping("chat", "alice")
			r.ping("chat", "bob")
			r.ping("chat", "carol")
			time.Sleep(1500 * time.Millisecond)
			r.letGo(1)
			require.Zero(r, r.s.Load(), "errors")
		}
		r.fake.repair("chat")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(r, r.s.Load(), "a timeout")
		r.ping("chat", "alice")
		r.ping("chat", "bob")
		time.Sleep(1500 * time.Millisecond)
		r.letGo(1)
		r.ping("chat", "carol")
		r.letGo(1)
		require.InDelta(r, 0.5, r.s.Load(), 0.001)
		r.letGo(1)
	})
}

// TestLoadIsThatOfTheBusiestNode: other nodes, and lookups, count as well.
func TestLoadIsThatOfTheBusiestNode(t *testing.T) {
	inBubble(t, Options{QueueSize: 4}, []string{"slow"}, func(r *rig) {
		r.lookup("slow.chat", "alice")
		r.lookup("slow.chat", "bob")
		r.answered(r.ping("fast.chat", "alice"))
		require.InDelta(r, 0.25, r.s.Load(), 0.001)
	})
}
