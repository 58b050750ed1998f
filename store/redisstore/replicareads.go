package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file reads from replicas: see docs/decisions/replicas.md.

// replicaResult is what became of a read that a replica could have answered.
type replicaResult int

const (
	resultReplica replicaResult = iota // a replica answered
	resultBehind                       // the primary did: no replica is near enough
	resultFailed                       // the primary did: the replica failed
	replicaResults
)

// ReplicaStats are what became of reads that replicas could have answered, since Open.
type ReplicaStats struct {
	Replica int64 // a replica answered
	Behind  int64 // the primary did: no replica is known and near enough
	Failed  int64 // the primary did: the replica failed
}

// ReplicaStats returns the statistics of reads from replicas.
func (s *Store) ReplicaStats() ReplicaStats {
	if s.replicas == nil {
		return ReplicaStats{}
	}
	count := func(result replicaResult) int64 { return s.replicas.counts[result].Load() }
	return ReplicaStats{
		Replica: count(resultReplica), Behind: count(resultBehind), Failed: count(resultFailed),
	}
}

// ReplicaAge returns how far behind the replica may be that is furthest behind; false if there is none. It includes the
// time between two heartbeats.
func (s *Store) ReplicaAge() (time.Duration, bool) {
	if s.replicas == nil {
		return 0, false
	}
	return s.replicas.age()
}

var _ store.ReplicaReader = (*Store)(nil)

// FromReplica implements [store.ReplicaReader]. All calls of the result use the same replica.
func (s *Store) FromReplica(primary store.Store, namespace string) (store.ReplicaReads, bool) {
	if s.replicas == nil {
		return nil, false
	}
	one := s.replicas.choose()
	if one == nil {
		s.replicas.counts[resultBehind].Add(1)
		return nil, false
	}
	return &replicaReads{Store: primary, own: s, replicas: s.replicas, replica: one, namespace: namespace}, true
}

// replicaReads is a [store.ReplicaReads].
type replicaReads struct {
	store.Store // the primary
	own         *Store
	replicas    *replicas
	replica     *replica
	namespace   string
	failed      atomic.Bool
	age         atomic.Int64 // a time.Duration, and 1 more; 0 while the replica has answered nothing
}

// Age implements [store.ReplicaReads].
func (r *replicaReads) Age() (time.Duration, bool) {
	age := r.age.Load()
	return time.Duration(max(age-1, 0)), age > 0
}

// try calls read with a context whose calls go to the replica, and reports whether that succeeded. What says
// nothing about a replica is not counted: a caller who does not wait any longer, and errors of the primary, which read
// asks for what it must know about a namespace.
func (r *replicaReads) try(
	ctx context.Context, operation, namespace string, read func(context.Context) error,
) bool {
	if r.failed.Load() || namespace != r.namespace {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, r.replicas.timeout())
	a, begun := &answer{replica: r.replica}, r.replicas.beats.monotonic()
	err := read(context.WithValue(asking, answerKey{}, a))
	cancel()
	switch {
	case err == nil && !a.asked:
		return true // there was nothing to ask for
	case err != nil && (ctx.Err() != nil || !a.behind && !a.failed):
		return false
	}
	result := a.result(err)
	r.replicas.counts[result].Add(1)
	if result != resultBehind {
		r.replicas.o.ObserveReplica(operation, r.replicas.beats.monotonic()-begun, err)
	}
	if result == resultReplica {
		r.raise(a.age)
		return true
	}
	r.failed.Store(true)
	if result == resultFailed && errors.Is(err, store.ErrUnavailable) {
		r.replica.working.Store(false) // until it answers a probe
	}
	return false
}

func (r *replicaReads) raise(age time.Duration) {
	for {
		before := r.age.Load()
		if before > int64(age) || r.age.CompareAndSwap(before, int64(age)+1) {
			return
		}
	}
}

// Lookup implements [store.Store].
func (r *replicaReads) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	states, _, err := r.Describe(ctx, namespace, users)
	return states, err
}

// Describe implements [store.Store].
func (r *replicaReads) Describe(
	ctx context.Context, namespace string, users []string,
) (states []lastseen.State, details map[string]store.Details, err error) {
	if r.try(ctx, "lookup", namespace, func(ctx context.Context) (err error) {
		states, details, err = r.own.Describe(ctx, namespace, users)
		return err
	}) {
		return states, details, nil
	}
	return r.Store.Describe(ctx, namespace, users)
}

// Count implements [store.Store].
func (r *replicaReads) Count(
	ctx context.Context, namespace string, ranges []lastseen.Range,
) (counts []int64, err error) {
	if r.try(ctx, "count", namespace, func(ctx context.Context) (err error) {
		counts, err = r.own.Count(ctx, namespace, ranges)
		return err
	}) {
		return counts, nil
	}
	return r.Store.Count(ctx, namespace, ranges)
}

// Newest implements [store.Store].
func (r *replicaReads) Newest(ctx context.Context, namespace string) (at lastseen.Instant, err error) {
	if r.try(ctx, "newest", namespace, func(ctx context.Context) (err error) {
		at, err = r.own.Newest(ctx, namespace)
		return err
	}) {
		return at, nil
	}
	return r.Store.Newest(ctx, namespace)
}

// List implements [store.Store].
func (r *replicaReads) List(
	ctx context.Context, namespace string, q store.ListQuery,
) (page []store.Record, err error) {
	if r.try(ctx, "list", namespace, func(ctx context.Context) (err error) {
		page, err = r.own.List(ctx, namespace, q)
		return err
	}) {
		return page, nil
	}
	return r.Store.List(ctx, namespace, q)
}

// ReadDetails implements [store.Store].
func (r *replicaReads) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (details map[string]store.Details, err error) {
	if r.try(ctx, "read_details", namespace, func(ctx context.Context) (err error) {
		details, err = r.own.ReadDetails(ctx, namespace, records)
		return err
	}) {
		return details, nil
	}
	return r.Store.ReadDetails(ctx, namespace, records)
}

// answerKey marks the context of calls that go to a replica. Its value is an *answer.
type answerKey struct{}

// answer is what a replica gave until now, in one call of a store.
type answer struct {
	replica *replica
	asked   bool // it was asked for something, and answered
	behind  bool // it was too far behind
	failed  bool // the last commands for it failed
	age     time.Duration
}

// result returns what became of the call with an error.
func (a *answer) result(err error) replicaResult {
	switch {
	case a.behind:
		return resultBehind
	case err != nil:
		return resultFailed
	default:
		return resultReplica
	}
}

// reader returns the client that a read of users uses: that of a replica if the context says so, and otherwise the
// primary's. What decides how to write, such as metas, is always read with the primary's.
func (s *Store) reader(ctx context.Context) redis.UniversalClient {
	if a := answerOf(ctx); a != nil {
		return a.replica.client
	}
	return s.client
}

// answerOf returns what a call with the context reads from a replica; nil if it reads from the primary.
func answerOf(ctx context.Context) *answer {
	a, _ := ctx.Value(answerKey{}).(*answer)
	return a
}

// onPrimary returns a context whose reads go to the primary; those of a replica's client pass as they are.
func onPrimary(ctx context.Context) context.Context {
	if answerOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, answerKey{}, (*answer)(nil))
}
