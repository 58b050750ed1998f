// Package replica reads from replicas of a Redis that are not too far behind their primary. See
// docs/decisions/replicas.md.
package replica

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

const (
	// maxReplicas bounds the replicas that are read from, and therefore the connections.
	maxReplicas = 8
	// discoverEvery is the time between two questions to the primary for its replicas.
	discoverEvery = time.Second
	// heartbeatsPerLag is how many heartbeats the largest lag has at least; maxHeartbeat is the most time between two.
	heartbeatsPerLag, maxHeartbeat = 4, time.Second
	// heartbeatKept is how long Redis keeps the last heartbeat of a server that has stopped. A replica whose clock is
	// ahead by more than this never has one.
	heartbeatKept = 10 * time.Minute
)

// Options sets which replicas are read from.
type Options struct {
	MaxLag       time.Duration // of a replica that is read from
	HeartbeatKey string        // that this process writes to the primary; no other process has the same

	Client redisclient.Options // of the primary, with which replicas are connected to

	// Observe is called with the time of each read that a replica answered, or failed to answer, and its error. The
	// operation is lookup, count, newest, list or read_details. It must return quickly.
	Observe func(operation string, took time.Duration, err error)
}

// Set has the replicas that are read from. The zero Set is that of a store that reads from the primary alone.
type Set struct {
	client *redisclient.Client // of the primary
	own    store.Store         // whose reads use the client of [redisclient.WithReader]
	o      Options
	clocks clocks

	answered, behind, failed atomic.Int64 // see Stats

	mu     sync.Mutex
	known  []*replica
	turn   int
	closed bool
}

// replica is one of them.
type replica struct {
	addr    string
	client  *redis.Client
	stop    func()                    // the probes
	seen    atomic.Pointer[heartbeat] // the newest one that it had, or that of the moment when it was found
	working atomic.Bool               // whether the last call succeeded

	// Used by probe alone.
	failing  *heartbeat // when the first of the probes failed that have failed since; nil if the last one succeeded
	reported bool       // this is in the log
}

// Open begins to look for replicas and to write heartbeats, until the client is closed. The store answers from replicas
// what is read with their client. There must be no Cluster.
func Open(client *redisclient.Client, own store.Store, o Options) *Set {
	r := &Set{client: client, own: own, o: o, clocks: clocks{o.Client.Monotonic, o.Client.Now}}
	client.Every(discoverEvery, r.discover)
	client.Every(r.heartbeatEvery(), r.sendHeartbeat)
	return r
}

// Close closes the connections to replicas. Calls that use them fail, and go to the primary.
func (r *Set) Close() error {
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
func (r *Set) timeout() time.Duration { return r.client.Timeout / 2 }

// heartbeatEvery returns the time between two heartbeats, and between two probes of a replica.
func (r *Set) heartbeatEvery() time.Duration { return min(r.o.MaxLag/heartbeatsPerLag, maxHeartbeat) }

// sendHeartbeat writes the next heartbeat to the primary. If that fails, replicas get old, and are not read from.
func (r *Set) sendHeartbeat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.client.Timeout)
	defer cancel()
	_ = r.client.Set(ctx, r.o.HeartbeatKey, r.clocks.present().String(), heartbeatKept).Err()
}

// discover asks the primary for its replicas. While it does not answer, those known remain.
func (r *Set) discover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.client.Timeout)
	defer cancel()
	info, err := redisclient.ReadInfo(ctx, r.client.UniversalClient.(*redis.Client), "replication")
	if err != nil {
		return
	}
	found := replicasIn(info)
	r.client.Log.LogIf(len(found) == 0, slog.LevelWarn, r.client.Name, "replicas to read from",
		"this Redis has no replicas to read from, or its user lacks +info: everything is read from the primary",
		"server", r.client.Name)
	r.keep(found)
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
func (r *Set) keep(addresses []string) {
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
			r.client.Log.LogOnce(slog.LevelWarn, addr, "replica", "failed", "cannot read from a replica",
				"server", addr, "error", err)
			continue
		}
		r.client.Log.LogOnce(slog.LevelWarn, addr, "replica", "", "") // what is wrong with it now is logged again
		one.stop = r.client.Every(r.heartbeatEvery(), func(ctx context.Context) { r.probe(ctx, one) })
		r.known = append(r.known, one)
	}
}

// connect returns a replica that has not been asked for anything.
func (r *Set) connect(addr string) (*replica, error) {
	client, err := redisclient.OpenReplica(r.o.Client, addr, r.timeout())
	if err != nil {
		return nil, err
	}
	one := &replica{addr: addr, client: client}
	first := r.clocks.present()
	one.seen.Store(&first)
	if r.o.Client.Instrument != nil {
		if err := r.o.Client.Instrument(client); err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	client.AddHook(&hook{r, one})
	return one, nil
}

// choose returns one of the replicas that work and are not too far behind, each in turn; nil if there is none.
func (r *Set) choose() *replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.known {
		one := r.known[(r.turn+i)%len(r.known)]
		if seen := one.seen.Load(); one.working.Load() && seen.read && r.clocks.age(*seen) <= r.o.MaxLag {
			r.turn = (r.turn + i + 1) % len(r.known)
			return one
		}
	}
	return nil
}

// Age returns how far behind the replica may be that is furthest behind; false if none is known. It says up to the time
// between two heartbeats and that between two probes more than it is.
func (r *Set) Age() (age time.Duration, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.known {
		age = max(age, r.clocks.age(*one.seen.Load()))
	}
	return age, len(r.known) > 0
}
