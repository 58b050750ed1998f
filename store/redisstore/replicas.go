package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file finds replicas and watches how far behind they are: see docs/decisions/replicas.md.

// The bounds of [Options.MaxLag].
const (
	MinLag = 100 * time.Millisecond
	MaxLag = time.Minute
)

const (
	// maxReplicas bounds the replicas that are read from, and therefore the connections.
	maxReplicas = 8
	// discoverEvery is the time between two questions to the primary for its replicas.
	discoverEvery = time.Second
	// beatsPerLag is the least number of heartbeats in the largest lag, and maxBeat the longest time between two.
	beatsPerLag, maxBeat = 4, time.Second
	// beatKept is how long Redis keeps the last heartbeat of a server that has stopped. A replica whose clock is ahead
	// by more than this never has one.
	beatKept = 10 * time.Minute
)

// replicas are the replicas that are read from. A nil *replicas is that of a store that reads from the primary alone.
type replicas struct {
	store  *Store
	o      Options
	key    string // of the heartbeats of this process
	beats  *beats
	counts [replicaResults]atomic.Int64

	mu     sync.Mutex
	known  []*replica
	turn   int
	closed bool
}

// replica is one of them.
type replica struct {
	addr    string
	client  *redis.Client
	stop    context.CancelFunc
	seen    atomic.Pointer[beat] // the newest one that it had, or a first one without a number
	working atomic.Bool          // whether the last call succeeded

	// Used by probe alone.
	failing  *beat // when the first of the probes failed that have failed since; nil if the last one succeeded
	reported bool  // this is in the log
}

// newReplicas returns the replicas of a store, none of which is known yet.
func newReplicas(s *Store, o Options) *replicas {
	if o.MaxLag == 0 {
		return nil
	}
	return &replicas{store: s, o: o, key: s.keys.heartbeat(s.holder), beats: newBeats(o)}
}

// checkLag returns an error if replicas cannot be read from.
func (o Options) checkLag() error {
	if o.MaxLag == 0 {
		return nil
	}
	if o.MaxLag < MinLag || o.MaxLag > MaxLag {
		return fmt.Errorf("%s is not a lag of replicas: use %s to %s",
			o.MaxLag, MinLag, MaxLag)
	}
	if a, err := parseAddress(o.URL); err == nil && a.topology == cluster {
		return errors.New("the replicas of a Cluster cannot be read from: set redis-read-from to primary, " +
			"or use redis:// or redis+sentinel://")
	}
	return nil
}

// run begins to look for replicas and to write heartbeats, until the context ends.
func (r *replicas) run(ctx context.Context) {
	if r == nil {
		return
	}
	r.store.stopped.Go(func() { repeat(ctx, discoverEvery, r.discover, func() {}) })
	r.store.stopped.Go(func() { repeat(ctx, r.beatEvery(), r.sendBeat, func() {}) })
}

// close closes the connections to replicas. Calls that use them fail, and go to the primary.
func (r *replicas) close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var failed error
	for _, one := range r.known {
		failed = errors.Join(failed, one.client.Close())
	}
	r.known = nil
	return failed
}

// timeout bounds a call to a replica: the primary can still be asked after it.
func (r *replicas) timeout() time.Duration { return r.store.timeout / 2 }

// beatEvery returns the time between two heartbeats, and between two probes of a replica.
func (r *replicas) beatEvery() time.Duration { return min(r.o.MaxLag/beatsPerLag, maxBeat) }

// sendBeat writes the next heartbeat to the primary. If that fails, replicas get old, and are not read from.
func (r *replicas) sendBeat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.store.timeout)
	defer cancel()
	next := r.beats.next()
	_ = r.store.client.Set(ctx, r.key, next.number, beatKept).Err()
}

// discover asks the primary for its replicas. While it does not answer, those known remain.
func (r *replicas) discover(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, r.store.timeout)
	defer cancel()
	client := r.store.client.(*redis.Client) // there is no Cluster: see checkLag
	info, err := readInfo(asking, client, "replication")
	if err != nil {
		return
	}
	found := replicasIn(info)
	value := ""
	if len(found) == 0 {
		value = "none"
	}
	r.store.log.logOnce(slog.LevelWarn, topic{r.store.url, "replicas to read from"}, value,
		"this Redis has no replicas to read from, or its user lacks +info: everything is read from the primary",
		"server", r.store.url)
	r.keep(ctx, found)
}

// replicasIn returns the addresses of the first replicas that a primary has, by its INFO.
func replicasIn(info map[string]string) (found []string) {
	if info["role"] != "master" {
		return nil
	}
	for n := 0; len(found) < maxReplicas; n++ {
		line, ok := info["slave"+strconv.Itoa(n)]
		if !ok {
			break
		}
		fields := map[string]string{}
		for pair := range strings.SplitSeq(strings.TrimSpace(line), ",") {
			name, value, _ := strings.Cut(pair, "=")
			fields[name] = value
		}
		if fields["state"] == "online" && fields["ip"] != "" {
			found = append(found, net.JoinHostPort(fields["ip"], fields["port"]))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// keep has exactly the replicas with these addresses.
func (r *replicas) keep(ctx context.Context, addresses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.known = slices.DeleteFunc(slices.Clone(r.known), func(one *replica) bool {
		gone := !slices.Contains(addresses, one.addr)
		if gone {
			one.stop()
			_ = one.client.Close() // calls in progress go to the primary
		}
		return gone
	})
	for _, addr := range addresses {
		if slices.ContainsFunc(r.known, func(one *replica) bool { return one.addr == addr }) {
			continue
		}
		one, err := r.connect(addr)
		if err != nil {
			r.store.log.logOnce(slog.LevelWarn, topic{addr, "replica"}, "failed", "cannot read from a replica",
				"server", addr, "error", err)
			continue
		}
		r.store.log.logOnce(slog.LevelWarn, topic{addr, "replica"}, "", "") // what is wrong with it now is logged again
		watching, stop := context.WithCancel(ctx)
		one.stop = stop
		r.known = append(r.known, one)
		r.store.stopped.Go(func() {
			repeat(watching, r.beatEvery(), func(ctx context.Context) { r.probe(ctx, one) }, func() {})
		})
	}
}

// connect returns a replica that has not been asked for anything.
func (r *replicas) connect(addr string) (*replica, error) {
	client, err := newReplicaClient(r.o, addr, r.timeout())
	if err != nil {
		return nil, err
	}
	one := &replica{addr: addr, client: client}
	first := r.beats.present()
	one.seen.Store(&first)
	if r.o.Instrument != nil {
		if err := r.o.Instrument(client); err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	client.AddHook(&replicaHook{r, one})
	return one, nil
}

// choose returns one of the replicas that work and are not too far behind, each in turn; nil if there is none.
func (r *replicas) choose() *replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.known {
		one := r.known[(r.turn+i)%len(r.known)]
		if seen := one.seen.Load(); one.working.Load() && seen.number > 0 && r.beats.age(*seen) <= r.o.MaxLag {
			r.turn = (r.turn + i + 1) % len(r.known)
			return one
		}
	}
	return nil
}

// age returns how far behind the replica may be that is furthest behind; false if none is known. It says up to the time
// between two heartbeats and that between two probes more than it is.
func (r *replicas) age() (age time.Duration, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.known {
		age = max(age, r.beats.age(*one.seen.Load()))
	}
	return age, len(r.known) > 0
}
