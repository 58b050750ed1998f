package topologies

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// replicated is a primary with a replica, and a store that reads from it. The store's clocks stand still unless a test
// moves them: so no busy machine makes the replica too old. Heartbeats go on.
type replicated struct {
	*redisstore.Store
	primary, replica *redistest.Process
	mono, wall       atomic.Int64 // time.Durations
}

// markerUser is known to the replica alone: what has this user comes from the replica.
const markerUser = "on-the-replica"

const testLag = redisstore.MinLag

// newReplicated starts the servers. The namespace chat has alice. The test runs in parallel with others.
func newReplicated(t *testing.T, o redisstore.Options) *replicated {
	t.Helper()
	t.Parallel()
	r := &replicated{primary: redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")}
	// Without a log, which a child would rewrite after a full copy of the data, perhaps while the test ends.
	r.replica = redistest.StartReplica(t, r.primary, "--appendonly", "no")
	ctx, client := context.Background(), r.replica.Client(t)
	stores.Eventually(t, func() bool {
		return r.primary.Client(t).Wait(ctx, 1, time.Second).Val() == 1
	})
	require.NoError(t, client.ConfigSet(ctx, "replica-read-only", "no").Err())
	o.URL, o.MaxLag = r.primary.URL(), cmp.Or(o.MaxLag, testLag)
	o.Monotonic = func() time.Duration { return time.Duration(r.mono.Load()) }
	began := time.Now()
	o.Now = func() time.Time { return began.Add(time.Duration(r.wall.Load())) }
	r.Store = stores.New(t, o)
	require.NoError(t, stores.Ping(r.Store, "chat", "alice"))
	stores.Eventually(t, func() bool { return client.ZScore(ctx, stores.Chat, "alice").Err() == nil })
	r.waitForMarker(t)
	return r
}

// waitForMarker waits until the store reads the marker from the replica.
func (r *replicated) waitForMarker(t *testing.T) {
	t.Helper()
	marker := fmt.Sprintf("return redis.call('zadd', KEYS[1], %d, ARGV[1])", kit.Base)
	stores.Eventually(t, func() bool {
		// Again each time: a replica that follows another primary gets all data anew.
		err := r.replica.Client(t).Eval(context.Background(), marker, []string{stores.Chat}, markerUser).Err()
		return err == nil && r.readsMarker(t)
	})
}

// readsMarker reports whether a request reads the marker now.
func (r *replicated) readsMarker(t *testing.T) bool {
	reads, ok := r.FromReplica(r.Store, "chat")
	if !ok {
		return false
	}
	states, _, err := reads.Describe(context.Background(), "chat", []string{markerUser})
	if err != nil {
		t.Errorf("a replica fails a request: %v", err)
	}
	_, aged := reads.Age()
	known := states[0].Known()
	if known && !aged {
		t.Error("the replica's data has no age")
	}
	return known
}

// detach has the replica not follow the primary any longer.
func (r *replicated) detach(t *testing.T) {
	t.Helper()
	require.NoError(t, r.replica.Client(t).Do(context.Background(), "REPLICAOF", "NO", "ONE").Err())
}

// reads begins a request that can read from the replica.
func (r *replicated) reads(t *testing.T) (reads store.ReplicaReads) {
	t.Helper()
	stores.Eventually(t, func() (ok bool) {
		reads, ok = r.FromReplica(r.Store, "chat")
		return ok
	})
	return reads
}

// query is a list of all users.
func query() store.ListQuery { return store.ListQuery{Ranges: kit.Everyone(), Limit: 10} }

// replicaCalls are the calls of ObserveReplica.
type replicaCalls struct {
	mu         sync.Mutex
	operations []string // with " failed" after an error
}

func (c *replicaCalls) observe(operation string, _ time.Duration, err error) {
	if err != nil {
		operation += " failed"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations = append(c.operations, operation)
}

// take returns the calls since the last take.
func (c *replicaCalls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	operations := c.operations
	c.operations = nil
	return operations
}

// TestReplicaAnswers checks each call that a replica answers, and that it is measured.
func TestReplicaAnswers(t *testing.T) {
	var calls replicaCalls
	ctx, r := context.Background(), newReplicated(t, redisstore.Options{ObserveReplica: calls.observe})
	state := lastseen.AvailabilityState{Availability: lastseen.Busy}
	availability.Set(t, r.Store, "alice", state)
	stores.Eventually(t, func() bool {
		records, err := r.reads(t).List(ctx, "chat", query())
		return err == nil && len(records) == 2
	}, "the replica has what was said")
	reads := r.reads(t)
	calls.take()
	states, details, err := reads.Describe(ctx, "chat", []string{markerUser, "alice", "bob", "alice"})
	require.NoError(t, err)
	require.Equal(t, []lastseen.State{{At: kit.Base}, {At: kit.Base}, {}, {At: kit.Base}}, states)
	require.Equal(t, state, details["alice"].Availability)
	require.Equal(t, []int64{2, 0}, kit.Count(t, reads, kit.Everyone()...))
	records := kit.List(t, reads, query())
	require.Len(t, records, 2)
	details, err = reads.ReadDetails(ctx, "chat", records)
	require.NoError(t, err)
	require.Equal(t, state, details["alice"].Availability)
	newest, err := reads.Newest(ctx, "chat")
	require.NoError(t, err)
	require.Equal(t, kit.Base, newest)
	require.Equal(t, []string{"lookup", "count", "list", "read_details", "newest"}, calls.take())
	age, ok := reads.Age()
	require.True(t, ok)
	require.Zero(t, age, "the clocks stand still")
	require.GreaterOrEqual(t, r.Replicas().Stats().Replica, int64(5))

	states, _, err = reads.Describe(ctx, "other", []string{markerUser})
	require.NoError(t, err)
	require.Equal(t, []lastseen.State{{}}, states, "another namespace")
	states = kit.Lookup(t, r, markerUser)
	require.Equal(t, []lastseen.State{{}}, states, "the store itself reads from the primary")
	require.Empty(t, calls.take(), "neither asked the replica")
}

// TestReplicaLacksOwnWrites: until a replica has what this process wrote, it answers as before.
func TestReplicaLacksOwnWrites(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, write := range map[string]func(*testing.T, *replicated){
		"Ping":          func(t *testing.T, r *replicated) { kit.Ping(t, r, "alice", kit.Base+1) },
		"Leave":         func(t *testing.T, r *replicated) { kit.Leave(t, r, "alice", kit.Base+1) },
		"RecordDevices": func(t *testing.T, r *replicated) { devices.RecordOne(t, r, devices.On("alice", "tab", kit.Base+1)) },
		"Forget":        func(t *testing.T, r *replicated) { require.NoError(t, r.Forget(ctx, "chat", "alice")) },
		"invisible":     func(t *testing.T, r *replicated) { availability.Set(t, r.Store, "alice", availability.Invisible) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicated(t, redisstore.Options{MaxLag: redisstore.MaxLag})
			begun := r.reads(t)
			r.detach(t)
			write(t, r)
			for _, reads := range []store.ReplicaReads{begun, r.reads(t)} {
				states := kit.Lookup(t, reads, markerUser, "alice")
				require.Equal(t, []lastseen.State{{At: kit.Base}, {At: kit.Base}}, states)
				require.Equal(t, []int64{2, 0}, kit.Count(t, reads, kit.Everyone()...))
			}
			require.NotEqual(t, []lastseen.State{{At: kit.Base}}, kit.Lookup(t, r, "alice"))
		})
	}
}
