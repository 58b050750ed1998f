package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// Stats are what became of reads that replicas could have answered, since Open.
type Stats struct {
	Replica int64 // a replica answered
	Behind  int64 // the primary did: no replica is known and near enough
	Failed  int64 // the primary did: the replica failed
}

// Stats returns statistics since Open.
func (r *Set) Stats() Stats {
	return Stats{Replica: r.answered.Load(), Behind: r.behind.Load(), Failed: r.failed.Load()}
}

// From returns a store whose reads of a namespace one replica answers where that is possible, and the primary
// otherwise. It returns false if no replica is near enough.
func (r *Set) From(primary store.Store, namespace string) (store.ReplicaReads, bool) {
	if r.o.MaxLag == 0 {
		return nil, false
	}
	one := r.choose()
	if one == nil {
		r.behind.Add(1)
		return nil, false
	}
	return &reads{Store: primary, replicas: r, replica: one, namespace: namespace}, true
}

// reads is a [store.ReplicaReads].
type reads struct {
	store.Store // the primary
	replicas    *Set
	replica     *replica
	namespace   string
	failed      atomic.Bool
	age         atomic.Int64 // a time.Duration, and 1 more; 0 while the replica has answered nothing
}

// Age implements [store.ReplicaReads].
func (r *reads) Age() (time.Duration, bool) {
	age := r.age.Load()
	return time.Duration(max(age-1, 0)), age > 0
}

// try calls read with a context whose calls go to the replica, and reports whether that succeeded. What says
// nothing about a replica is not counted: a caller who does not wait any longer, and errors of the primary, which read
// asks for what it must know about a namespace.
func (r *reads) try(
	ctx context.Context, operation, namespace string, read func(context.Context) error,
) bool {
	if r.failed.Load() || namespace != r.namespace {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, r.replicas.timeout())
	a, begun := &answer{replica: r.replica}, r.replicas.clocks.monotonic()
	err := read(context.WithValue(redisclient.WithReader(asking, a.replica.client), answerKey{}, a))
	cancel()
	took := r.replicas.clocks.monotonic() - begun
	switch {
	case err == nil && !a.asked:
		return true // there was nothing to ask for
	case err != nil && (ctx.Err() != nil || !a.behind && !a.failed):
		return false
	case a.behind:
		r.replicas.behind.Add(1)
	case err != nil:
		r.replicas.failed.Add(1)
		r.replicas.o.Observe(operation, took, err)
		if errors.Is(err, store.ErrUnavailable) {
			r.replica.working.Store(false) // until it answers a probe
		}
	default:
		r.replicas.answered.Add(1)
		r.replicas.o.Observe(operation, took, nil)
		r.raise(a.age)
		return true
	}
	r.failed.Store(true)
	return false
}

func (r *reads) raise(age time.Duration) {
	for {
		before := r.age.Load()
		if before > int64(age) || r.age.CompareAndSwap(before, int64(age)+1) {
			return
		}
	}
}

// Describe implements [store.Store].
func (r *reads) Describe(
	ctx context.Context, namespace string, users []string,
) (states []lastseen.State, details map[string]store.Details, err error) {
	states, err = from(ctx, r, "lookup", namespace, func(ctx context.Context, s store.Store) ([]lastseen.State, error) {
		states, described, err := s.Describe(ctx, namespace, users)
		details = described
		return states, err
	})
	return states, details, err
}

// Count implements [store.Store].
func (r *reads) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	return from(ctx, r, "count", namespace, func(ctx context.Context, s store.Store) ([]int64, error) {
		return s.Count(ctx, namespace, ranges)
	})
}

// Newest implements [store.Store].
func (r *reads) Newest(ctx context.Context, namespace string) (lastseen.Instant, error) {
	return from(ctx, r, "newest", namespace, func(ctx context.Context, s store.Store) (lastseen.Instant, error) {
		return s.Newest(ctx, namespace)
	})
}

// List implements [store.Store].
func (r *reads) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	return from(ctx, r, "list", namespace, func(ctx context.Context, s store.Store) ([]store.Record, error) {
		return s.List(ctx, namespace, q)
	})
}

// ReadDetails implements [store.Store].
func (r *reads) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (map[string]store.Details, error) {
	return from(ctx, r, "read_details", namespace,
		func(ctx context.Context, s store.Store) (map[string]store.Details, error) {
			return s.ReadDetails(ctx, namespace, records)
		})
}

// from reads from the replica, or from the primary if that does not succeed.
func from[T any](
	ctx context.Context, r *reads, operation, namespace string, read func(context.Context, store.Store) (T, error),
) (result T, err error) {
	if r.try(ctx, operation, namespace, func(ctx context.Context) (err error) {
		result, err = read(ctx, r.replicas.own)
		return err
	}) {
		return result, nil
	}
	return read(ctx, r.Store)
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

// answerOf returns what a call with the context reads from a replica; nil if it reads from the primary.
func answerOf(ctx context.Context) *answer {
	a, _ := ctx.Value(answerKey{}).(*answer)
	return a
}
