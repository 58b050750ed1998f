package observe

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Store returns s with its calls measured. What s has beyond a [store.Store] is found with [store.As].
//
// Now is not measured: it hardly ever makes a call. A call with several reads or sweeps of changes is one call; its
// outcome is that of the first one that failed. Errors that are results, such as that there is no feed, do not count.
func Store(s store.Store, c *Calls) store.Store { return &observed{s, c} }

// Batcher returns s with its calls measured. A call with several batches is one call; its outcome is that of the first
// batch that failed.
func Batcher(s store.Batcher, c *Calls) store.Batcher { return &observedBatcher{observed{s, c}, s} }

type observed struct {
	store.Store
	meter meter
}

// meter notices each call. Done has what begin returned, and the error of the call.
type meter interface {
	begin(o operation) time.Duration
	done(o operation, begun time.Duration, err error)
}

// done ends a call. Methods defer it, with the results' variable, which stays on the stack since no interface has it.
func (s *observed) done(o operation, begun time.Duration, err *error) { s.meter.done(o, begun, *err) }

// Unwrap returns the store that is measured; see [store.As].
func (s *observed) Unwrap() store.Store { return s.Store }

func (s *observed) Ping(ctx context.Context, ns string, batch []store.Sighting) (_ []lastseen.State, err error) {
	defer s.done(opPing, s.meter.begin(opPing), &err)
	return s.Store.Ping(ctx, ns, batch)
}

func (s *observed) Leave(ctx context.Context, ns string, batch []store.Sighting) (_ []lastseen.State, err error) {
	defer s.done(opLeave, s.meter.begin(opLeave), &err)
	return s.Store.Leave(ctx, ns, batch)
}

func (s *observed) Lookup(ctx context.Context, ns string, users []string) (_ []lastseen.State, err error) {
	defer s.done(opLookup, s.meter.begin(opLookup), &err)
	return s.Store.Lookup(ctx, ns, users)
}

func (s *observed) Count(ctx context.Context, ns string, ranges []lastseen.Range) (_ []int64, err error) {
	defer s.done(opCount, s.meter.begin(opCount), &err)
	return s.Store.Count(ctx, ns, ranges)
}

func (s *observed) Newest(ctx context.Context, ns string) (_ lastseen.Instant, err error) {
	defer s.done(opNewest, s.meter.begin(opNewest), &err)
	return s.Store.Newest(ctx, ns)
}

func (s *observed) List(ctx context.Context, ns string, q store.ListQuery) (_ []store.Record, err error) {
	defer s.done(opList, s.meter.begin(opList), &err)
	return s.Store.List(ctx, ns, q)
}

func (s *observed) Forget(ctx context.Context, ns, user string) (err error) {
	defer s.done(opForget, s.meter.begin(opForget), &err)
	return s.Store.Forget(ctx, ns, user)
}

func (s *observed) Trim(ctx context.Context, ns string, q store.TrimQuery) (_ store.TrimResult, err error) {
	defer s.done(opTrim, s.meter.begin(opTrim), &err)
	return s.Store.Trim(ctx, ns, q)
}

func (s *observed) Namespaces(ctx context.Context, after string, limit int) (_ []store.NamespaceInfo, err error) {
	defer s.done(opNamespaces, s.meter.begin(opNamespaces), &err)
	return s.Store.Namespaces(ctx, after, limit)
}

func (s *observed) Exist(ctx context.Context, namespaces []string) (_ []bool, err error) {
	defer s.done(opExist, s.meter.begin(opExist), &err)
	return s.Store.Exist(ctx, namespaces)
}

func (s *observed) Register(ctx context.Context, namespaces []string) (err error) {
	defer s.done(opRegister, s.meter.begin(opRegister), &err)
	return s.Store.Register(ctx, namespaces)
}

func (s *observed) RemoveEmpty(ctx context.Context, ns string) (_ bool, err error) {
	defer s.done(opRemoveEmpty, s.meter.begin(opRemoveEmpty), &err)
	return s.Store.RemoveEmpty(ctx, ns)
}

func (s *observed) DeleteNamespace(ctx context.Context, ns string) (err error) {
	defer s.done(opDeleteNamespace, s.meter.begin(opDeleteNamespace), &err)
	return s.Store.DeleteNamespace(ctx, ns)
}

func (s *observed) Lease(ctx context.Context, name string, ttl time.Duration) (_ bool, err error) {
	defer s.done(opLease, s.meter.begin(opLease), &err)
	return s.Store.Lease(ctx, name, ttl)
}

func (s *observed) Ready(ctx context.Context) (err error) {
	defer s.done(opReady, s.meter.begin(opReady), &err)
	return s.Store.Ready(ctx)
}

type observedBatcher struct {
	observed
	batcher store.Batcher // the same store
}

func (s *observedBatcher) PingBatches(ctx context.Context, batches []*store.Batch[store.Sighting]) {
	var failed error
	defer s.done(opPing, s.meter.begin(opPing), &failed)
	s.batcher.PingBatches(ctx, batches)
	failed = firstError(batches)
}

func (s *observedBatcher) LookupBatches(ctx context.Context, batches []*store.Batch[string]) {
	var failed error
	defer s.done(opLookup, s.meter.begin(opLookup), &failed)
	s.batcher.LookupBatches(ctx, batches)
	failed = firstError(batches)
}

func (s *observedBatcher) NodeOf(namespace string) (of func(user string) string) {
	return s.batcher.NodeOf(namespace)
}

func firstError[T any](batches []*store.Batch[T]) error {
	for _, b := range batches {
		if b.Err != nil {
			return b.Err
		}
	}
	return nil
}
