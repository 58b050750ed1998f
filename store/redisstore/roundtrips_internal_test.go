package redisstore

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// trips counts the round trips of a client, and notes how many users whose IDs begin with "user" one has at most.
type trips struct {
	redistest.AroundCommands
	n, users atomic.Int64
}

func (t *trips) note(cmds ...redis.Cmder) {
	users := int64(0)
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			if id, isID := arg.(*string); isID && strings.HasPrefix(*id, "user") {
				users++
			}
		}
	}
	t.n.Add(1)
	t.users.Store(max(t.users.Load(), users))
}

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.note(cmd)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.note(cmds...)
		return next(ctx, cmds)
	}
}

// TestRoundTripsOfABatch: however many namespaces are pinged or looked up together for the first time, our own and
// shared ones, it takes as many round trips. All callers of the batch wait for them.
func TestRoundTripsOfABatch(t *testing.T) {
	ctx, o := context.Background(), Options{Layouts: map[string]Layout{}}
	const rounds, namespaces = 3, 200
	for i := range rounds * namespaces {
		o.Layouts[fmt.Sprint("shared", i)] = Layout{Unit: Seconds}
	}
	s := openNew(t, o)
	_, err := s.Ping(ctx, "before", []store.PresenceEvent{{User: "alice", At: 1}}) // it also loads the script
	require.NoError(t, err)
	require.Eventually(t, func() bool { // what the store does once in the background comes before
		return strings.Contains(s.client.Info(ctx, "commandstats").Val(), "cmdstat_time:")
	}, time.Minute, time.Millisecond)

	var counted trips
	s.client.AddHook(&counted)
	cost := func(from, to int) (pings, lookups int64) {
		var events []*eventBatch
		var users []*store.Batch[string]
		for i := from; i < to; i++ {
			for _, kind := range []string{"own", "shared"} {
				name := fmt.Sprint(kind, i)
				ping := []store.PresenceEvent{{User: "alice", At: 1}}
				events = append(events, &eventBatch{Namespace: name, Items: ping})
				users = append(users, &store.Batch[string]{Namespace: name, Items: []string{"alice"}})
			}
		}
		counted.n.Store(0)
		s.PingBatches(ctx, events)
		pings = counted.n.Swap(0)
		s.metaCache.nextRound() // as every ten seconds
		s.LookupBatches(ctx, users)
		for i := range users {
			require.NoError(t, events[i].Err)
			require.NoError(t, users[i].Err)
			require.Equal(t, events[i].States, users[i].States)
		}
		return pings, counted.n.Load()
	}
	// What the store does in the background now and then can come between: the least cost counts.
	fewPings, fewLookups := cost(0, 2)
	manyPings, manyLookups := cost(2, namespaces)
	for first := namespaces; first < rounds*namespaces; first += namespaces {
		pings, lookups := cost(first, first+2)
		fewPings, fewLookups = min(fewPings, pings), min(fewLookups, lookups)
		pings, lookups = cost(first+2, first+namespaces)
		manyPings, manyLookups = min(manyPings, pings), min(manyLookups, lookups)
	}
	require.Equal(t, fewPings, manyPings)
	require.Equal(t, fewLookups, manyLookups)
}

// TestEachBatchHasItsOwnOutcome: an error of one namespace does not affect the others, also while scripts have to be
// sent again.
func TestEachBatchHasItsOwnOutcome(t *testing.T) {
	ctx := context.Background()
	s := openNew(t, Options{})
	require.NoError(t, s.client.Set(ctx, "presence:string", "a string", 0).Err())
	require.NoError(t, s.client.HSet(ctx, "presence::meta", "spread", "shards=7 unit=ms hash=fnv1a64").Err())
	names := []string{"chat", "string", "spread", "game", "chat"}
	wants := []error{nil, store.ErrWrongType, store.ErrMismatch, nil, nil}
	for range 2 {
		require.NoError(t, s.client.ScriptFlush(ctx).Err())
		var pings []*eventBatch
		var lookups []*store.Batch[string]
		for i, name := range names {
			at := lastseen.Instant(10 * (i + 1))
			pings = append(pings, &eventBatch{
				Namespace: name,
				Items:     []store.PresenceEvent{{User: "alice", At: at}, {User: name, At: at + 1}},
			})
			lookups = append(lookups, &store.Batch[string]{Namespace: name, Items: []string{name, "nobody", "alice"}})
		}
		s.PingBatches(ctx, pings)
		s.LookupBatches(ctx, lookups)
		for i, want := range wants {
			require.ErrorIs(t, pings[i].Err, want, names[i])
			require.ErrorIs(t, lookups[i].Err, want, names[i])
			if want != nil {
				require.Empty(t, pings[i].States)
				require.Empty(t, lookups[i].States)
			}
		}
		require.Equal(t, []lastseen.State{{At: 50}, {At: 51}}, pings[4].States, "the later of the two batches about it")
		require.Equal(t, []lastseen.State{{At: 51}, {}, {At: 50}}, lookups[0].States)
		require.Equal(t, []lastseen.State{{At: 40}, {At: 41}}, pings[3].States)
		require.Equal(t, []lastseen.State{{At: 41}, {}, {At: 40}}, lookups[3].States)
	}
}

// TestRoundTripsOfATrim: a trim has the time of two timeouts, however many shards it deletes from, so it cannot visit
// one after the other.
func TestRoundTripsOfATrim(t *testing.T) {
	ctx := context.Background()
	s := openNew(t, Options{Shards: MaxShards})
	old := make([]store.PresenceEvent, 2*store.MaxTrim+300)
	for i := range old {
		old[i] = store.PresenceEvent{User: fmt.Sprint(i), At: 1}
	}
	_, err := s.Ping(ctx, "chat", old)
	require.NoError(t, err)
	var counted trips
	s.client.AddHook(&counted)
	for _, want := range []int{store.MaxTrim, store.MaxTrim, 300, 0} {
		now, err := s.Now(ctx)
		require.NoError(t, err)
		counted.n.Store(0)
		result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: now, All: true})
		require.NoError(t, err)
		require.Equal(t, store.TrimResult{Deleted: want}, result)
		// it sends the script again, too
		require.Less(t, counted.n.Load(), int64(10), "besides those in the background")
	}
}

// TestRoundTripsOfDevices: Redis runs the scripts that it reads together before it serves others, so few of those that
// take long are sent together.
func TestRoundTripsOfDevices(t *testing.T) {
	ctx := context.Background()
	s := openNew(t, Options{Shards: 4})
	pings := make([]store.DeviceEvent, 500)
	for i := range pings {
		pings[i] = store.DeviceEvent{User: fmt.Sprint("user", i), ID: "phone", Kind: lastseen.Mobile, At: 1}
	}
	var sent trips
	s.client.AddHook(&sent)
	for range 2 {
		states, err := s.RecordDevices(ctx, "chat", time.Hour, pings)
		require.NoError(t, err)
		require.Len(t, states, len(pings))
		require.LessOrEqual(t, sent.users.Swap(0), int64(2*maxDeviceChunk))
	}
	leaves := make([]store.PresenceEvent, len(pings))
	for i := range leaves {
		leaves[i] = store.PresenceEvent{User: pings[i].User, At: 2}
	}
	states, err := s.Leave(ctx, "chat", leaves)
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]lastseen.State{{At: 2, Left: true}}, len(leaves)), states)
	require.LessOrEqual(t, sent.users.Load(), int64(2*maxDeviceChunk))
}

// BenchmarkLongestCommand measures the longest command or script that the largest request of each route causes, by
// Redis' slow log, and how long others wait. IDs have 32 bytes, users 32 devices, and namespaces a feed and users who
// set an availability. Bulk requests of more than 1,000 users cause more scripts, but no longer ones. See
// docs/performance.md.
func BenchmarkLongestCommand(b *testing.B) {
	ctx, s := context.Background(), openNew(b, Options{})
	const window = time.Hour
	users := func(kind string, n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("%s%0*d", kind, 32-len(kind), i*7919%100_003))
		}
		return ids
	}
	now := func() lastseen.Instant {
		now, err := s.Now(ctx)
		require.NoError(b, err)
		return now
	}
	events := func(ids []string) (all []store.PresenceEvent) {
		for at := now(); len(all) < len(ids); {
			all = append(all, store.PresenceEvent{User: ids[len(all)], At: at})
		}
		return all
	}
	record := func(namespace string, ids []string, device int) {
		all := make([]store.DeviceEvent, len(ids))
		for i, at := 0, now(); i < len(ids); i++ {
			all[i] = store.DeviceEvent{
				User: ids[i], ID: fmt.Sprint("device", device), Kind: lastseen.Desktop, At: at,
				Meta: fmt.Sprintf(`{"app":"1.2.%d","os":"linux"}`, at%10),
			}
		}
		_, err := s.RecordDevices(ctx, namespace, window, all)
		require.NoError(b, err)
	}
	many := users("user", 10_000)
	for device := range lastseen.MaxDevices {
		record("chat", many[:1000], device)
	}
	require.NoError(b, s.RecordChanges(ctx, "chat", lastseen.Thresholds{Green: time.Minute, Yellow: window}))
	for _, user := range many[:1000] {
		availability := lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "in a meeting until three"}
		_, err := s.SetAvailability(ctx, "chat", user, availability, now())
		require.NoError(b, err)
	}
	_, err := s.Ping(ctx, "chat", events(many))
	require.NoError(b, err)
	lists, run := [][]string{users("a", store.MaxContacts), users("b", store.MaxContacts)}, 0
	half := store.MaxContacts / 2
	full := func(namespace, owner string) {
		require.NoError(b, s.SetContacts(ctx, namespace, owner, lists[0]))
	}
	pairs := make([]store.ContactPair, 1000)
	for i := range pairs {
		pairs[i] = store.ContactPair{Owner: many[i], Contact: many[i+1]}
	}
	trims := func() store.TrimQuery { return store.TrimQuery{Age: time.Millisecond, Now: now(), All: true} }
	nothing := func() {}
	for _, m := range []struct {
		name    string
		prepare func()
		request func() error
	}{
		{"pings", nothing, func() error { _, err := s.Ping(ctx, "chat", events(many[1000:2000])); return err }},
		{"pings-of-devices", nothing, func() error { record("chat", many[:1000], run%lastseen.MaxDevices); return nil }},
		{"leaves", func() {
			for device := range lastseen.MaxDevices {
				record("chat", many[:1000], device)
			}
		}, func() error { _, err := s.Leave(ctx, "chat", events(many[:1000])); return err }},
		{"lookup", nothing, func() error { _, _, err := s.Describe(ctx, "chat", many[:1000]); return err }},
		{"list", nothing, func() error {
			everyone := []lastseen.Range{{Left: true, To: now()}, {To: now()}}
			_, err := s.List(ctx, "chat", store.ListQuery{Ranges: everyone, Limit: 1001})
			return err
		}},
		{"changes", nothing, func() error { _, err := s.SnapshotChanges(ctx, "chat", many[:1000]); return err }},
		{
			"changes-of-contacts", nothing,
			func() error { _, err := s.SnapshotChanges(ctx, "chat", many[:store.MaxContacts]); return err },
		},
		{
			"put-contacts", func() { full("chat", "alice") },
			func() error { return s.SetContacts(ctx, "chat", "alice", lists[1]) },
		},
		{
			"put-500-contacts", func() { require.NoError(b, s.SetContacts(ctx, "chat", "alice", nil)) },
			func() error { return s.SetContacts(ctx, "chat", "alice", lists[1][:500]) },
		},
		{
			"patch-contacts", func() { require.NoError(b, s.SetContacts(ctx, "chat", "alice", lists[0][:half])) },
			func() error { return s.ChangeContacts(ctx, "chat", "alice", lists[1][:half], lists[0][:half]) },
		},
		{
			"delete-contacts", func() { full("chat", "alice") },
			func() error { return s.SetContacts(ctx, "chat", "alice", nil) },
		},
		{"list-contacts", func() { full("chat", "alice") }, func() error {
			_, err := s.ListContacts(ctx, "chat", "alice", "", 1001)
			return err
		}},
		{"are-contacts", nothing, func() error { _, err := s.AreContacts(ctx, "chat", pairs); return err }},
		{"delete-user", func() { full("chat", many[run]) }, func() error { return s.Forget(ctx, "chat", many[run]) }},
		{"retention", func() {
			for device := range lastseen.MaxDevices {
				record("old", many[:1000], device)
			}
		}, func() error { _, err := s.Trim(ctx, "old", trims()); return err }},
		{
			"contacts-retention", func() { full("old", "alice"); time.Sleep(5 * time.Millisecond) },
			func() error { _, err := s.TrimContacts(ctx, "old", trims()); return err },
		},
		{
			"delete-namespace", func() { full("old", "alice"); record("old", many, 0) },
			func() error { return s.DeleteNamespace(ctx, "old") },
		},
	} {
		b.Run(m.name, func(b *testing.B) {
			command, wait := time.Hour, time.Hour // the least: the others had to wait for the processor
			for range 15 {
				run++
				m.prepare()
				command = min(command, longestCommand(b, s, m.request))
				m.prepare()
				wait = min(wait, longestWait(b, s, m.request))
			}
			b.ReportMetric(float64(command.Microseconds()), "µs/command")
			b.ReportMetric(float64(wait.Microseconds()), "µs/wait")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// longestCommand returns how long Redis takes for the longest command of a request.
func longestCommand(b *testing.B, s *Store, request func() error) (d time.Duration) {
	ctx := context.Background()
	require.NoError(b, s.client.ConfigSet(ctx, "slowlog-max-len", "10000").Err())
	require.NoError(b, s.client.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
	require.NoError(b, s.client.Do(ctx, "slowlog", "reset").Err())
	require.NoError(b, request())
	log, err := s.client.UniversalClient.(*redis.Client).SlowLogGet(ctx, -1).Result()
	require.NoError(b, err)
	for _, entry := range log {
		if entry.Args[0] != "slowlog" {
			d = max(d, entry.Duration)
		}
	}
	return d
}

// longestWait returns the longest time that another connection waits for a reply to PING, sent again and again, while
// Redis serves a request.
func longestWait(b *testing.B, s *Store, request func() error) (d time.Duration) {
	conn, err := net.Dial("tcp", s.client.UniversalClient.(*redis.Client).Options().Addr)
	require.NoError(b, err)
	defer conn.Close()
	ping := func() time.Duration {
		begun, reply := time.Now(), make([]byte, len("+PONG\r\n"))
		_, err := conn.Write([]byte("PING\r\n"))
		require.NoError(b, err)
		_, err = io.ReadFull(conn, reply)
		require.NoError(b, err)
		return time.Since(begun)
	}
	ping() // the first one has to be accepted
	failed := make(chan error, 1)
	go func() { failed <- request() }()
	for {
		d = max(d, ping())
		select {
		case err := <-failed:
			require.NoError(b, err)
			return d
		default:
		}
	}
}
