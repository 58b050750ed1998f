package coalesce

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// described is what a caller of Describe got, once it is done.
type described struct {
	result
	details map[string]store.Details
}

// describe starts a call of Describe and returns when it waits or is answered.
func (r *rig) describe(namespace string, users ...string) *described {
	d := &described{}
	go func() {
		d.states, d.details, d.err = r.s.Describe(context.Background(), namespace, users)
		d.done = true
	}()
	synctest.Wait()
	return d
}

func busyAndIdle() map[string]store.Details {
	return map[string]store.Details{
		"bob":  {Availability: lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "in a meeting", Until: 9}},
		"dave": {IdleSince: 7},
	}
}

// TestDescribeJoinsLookups checks that what waits is one batch, and that each caller gets the details of its own users.
func TestDescribeJoinsLookups(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		r.fake.details = busyAndIdle()
		first := r.describe("chat", "alice")
		bob, both := r.describe("chat", "bob"), r.describe("chat", "dave", "alice", "bob", "dave")
		plain, elsewhere := r.lookup("chat", "bob"), r.describe("game", "carol")
		r.letGo(2)
		require.Equal(r, []string{
			"chat:alice", "chat:bob,dave,alice,bob,dave,bob game:carol",
		}, r.fake.batches)
		all := busyAndIdle()
		require.Nil(r, first.details)
		require.Equal(r, map[string]store.Details{"bob": all["bob"]}, bob.details)
		require.Equal(r, all, both.details)
		require.Nil(r, elsewhere.details)
		require.Equal(r, []lastseen.State{{At: 1}}, plain.states)
		for _, d := range []*described{first, bob, both, elsewhere} {
			require.NoError(r, d.err)
			require.True(r, d.done)
			for _, state := range d.states {
				require.Equal(r, lastseen.State{At: 1}, state)
			}
		}
	})
}

// TestDescribeOverNodes checks that the details from several nodes are put together, also of large calls.
func TestDescribeOverNodes(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 2}, nil, func(r *rig) {
		r.fake.byUser = true
		all := map[string]store.Details{"a.1": {IdleSince: 1}, "a.4": {IdleSince: 4}, "b.1": {IdleSince: 5}}
		r.fake.details = all
		d := r.describe("chat", "c.1", "a.1", "a.2", "a.3", "a.4", "b.1")
		require.NoError(r, d.err)
		require.Equal(r, all, d.details)
		require.Len(r, d.states, 6)
	})
}

// TestDescribeFails checks that nothing is known if a part fails, and that a call does not keep the details of the one
// before it.
func TestDescribeFails(t *testing.T) {
	inBubble(t, Options{Timeout: time.Minute}, nil, func(r *rig) {
		r.fake.details, r.fake.broken = busyAndIdle(), map[string]error{"broken": errBroken}
		failed := r.describe("broken", "bob")
		require.ErrorIs(r, failed.err, errBroken)
		require.Nil(r, failed.states)
		require.Nil(r, failed.details)
		require.NotNil(r, r.describe("chat", "bob").details)
		require.Nil(r, r.describe("chat", "alice").details)
	})
}
