package coalesce

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// RecordDevices has each user's time as the resulting state; that of the last event if a user is named twice.
func (f *fake) RecordDevices(
	ctx context.Context, namespace string, window time.Duration, batch []store.DeviceEvent,
) ([]lastseen.State, error) {
	b := &store.Batch[store.DeviceEvent]{Namespace: fmt.Sprint(namespace, " ", window), Items: batch}
	final := map[string]lastseen.State{}
	for _, s := range batch {
		final[s.User] = lastseen.State{At: s.At, Left: s.Gone}
	}
	serve(ctx, f, []*store.Batch[store.DeviceEvent]{b}, func(s store.DeviceEvent) (string, lastseen.State) {
		return s.User, final[s.User]
	})
	return b.States, b.Err
}

// record starts a call of RecordDevices and returns when it waits or is answered.
func (r *rig) record(namespace string, window time.Duration, batch ...store.DeviceEvent) *result {
	return start(func() ([]lastseen.State, error) {
		return r.s.RecordDevices(context.Background(), namespace, window, batch)
	})
}

func event(user string, at lastseen.Instant) store.DeviceEvent {
	return store.DeviceEvent{User: user, ID: "tab", At: at}
}

// TestDevicesWaitTogether: while a call is in progress, those that arrive become the next one.
func TestDevicesWaitTogether(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		first := r.record("chat", time.Minute, event("first", 1))
		var rest []*result
		for i := range 5 {
			rest = append(rest, r.record("chat", time.Minute, event(fmt.Sprint("u", i), lastseen.Instant(i+2))))
		}
		require.EqualValues(t, 5, r.s.Stats().Devices.Queued)
		pinged := r.ping("chat", "alice") // has its own queue
		require.Equal(t, []string{"chat 1m0s:first", "chat:alice"}, r.fake.seen())
		r.letGo(3)
		r.answered(append(rest, first, pinged)...)
		require.Contains(t, r.fake.seen(), "chat 1m0s:u0,u1,u2,u3,u4")
		require.Len(t, r.batches(Devices), 2)
		for i, c := range rest {
			require.Equal(t, []lastseen.State{{At: lastseen.Instant(i + 2)}}, c.states)
		}
	})
}

// TestDevicesOfOtherWindows: callers with different settings are not mixed, and their order stays.
func TestDevicesOfOtherWindows(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		calls := []*result{
			r.record("chat", time.Minute, event("first", 1)), r.record("chat", time.Minute, event("a", 1)),
			r.record("chat", time.Second, event("b", 1), event("c", 1)),
			r.record("chat", time.Minute, event("d", 1)),
		}
		r.letGo(4)
		r.answered(calls...)
		require.Equal(t, []string{"chat 1m0s:first", "chat 1m0s:a", "chat 1s:b,c", "chat 1m0s:d"}, r.fake.seen())
	})
}

// TestDevicesFailWithTheirNamespace: an error and a panic fail the callers of one namespace, in a batch of several.
func TestDevicesFailWithTheirNamespace(t *testing.T) {
	inBubble(t, Options{}, []string{"n"}, func(r *rig) {
		for name, broken := range map[string]error{
			"n.error": errBroken, "n.none": store.ErrNoDevices, "n.panic": errPanic,
		} {
			r.fake.broken[name] = broken
		}
		calls := map[string]*result{}
		for _, name := range []string{"n.first", "n.error", "n.none", "n.panic", "n.fine"} {
			calls[name] = r.record(name, time.Minute, event("a", 1))
		}
		for range calls {
			r.fake.hold["n"] <- struct{}{}
			synctest.Wait()
		}
		r.answered(calls["n.first"], calls["n.fine"])
		require.ErrorIs(t, calls["n.error"].err, errBroken)
		require.ErrorIs(t, calls["n.none"].err, store.ErrNoDevices)
		require.ErrorContains(t, calls["n.panic"].err, "panic")
		require.Len(t, r.batches(Devices), 2)
	})
}

// TestDevicesOfOneUserInSeveralBatches: each occurrence of the user has the final state, which is not the greatest.
func TestDevicesOfOneUserInSeveralBatches(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 2}, nil, func(r *rig) {
		left := event("alice", 5)
		left.Gone = true
		c := r.record("chat", time.Minute, left, event("bob", 2), event("alice", 5))
		r.answered(c)
		require.Equal(t, []lastseen.State{{At: 5}, {At: 2}, {At: 5}}, c.states)
	})
}

// TestDevicesOfOneNamespaceInOrder: the parts of a batch that are about one namespace are recorded one after the other.
func TestDevicesOfOneNamespaceInOrder(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 1}, []string{""}, func(r *rig) {
		c := r.record("chat", time.Minute, event("a", 1), event("b", 1), event("c", 1), event("d", 1))
		for i, part := range []string{"a", "b", "c", "d"} {
			require.Len(t, r.fake.seen(), i+1)
			require.Equal(t, "chat 1m0s:"+part, r.fake.seen()[i])
			r.letGo(1)
		}
		r.answered(c)
		require.Len(t, r.batches(Devices), 1)
	})
}

// TestNoDevicesToRecord: the store is asked, since it knows whether the namespace can have devices.
func TestNoDevicesToRecord(t *testing.T) {
	inBubble(t, Options{}, nil, func(r *rig) {
		r.fake.broken["chat"] = store.ErrNoDevices
		c := r.record("chat", time.Minute)
		require.ErrorIs(t, c.err, store.ErrNoDevices)
	})
}
