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
// outcome is that of the first one that failed. That a namespace has no feed, or none now, is no failure.
func Store(s store.Store, c *Calls) store.Store { return &observed{s, c} }

// Batcher returns s with its calls measured. A call with several batches is one call; its outcome is that of the first
// batch that failed.
func Batcher(s store.Batcher, c *Calls) store.Batcher { return &observedBatcher{observed{s, c}, s} }

type observed struct {
	store.Store
	calls *Calls
}

// Unwrap returns the store that is measured; see [store.As].
func (s *observed) Unwrap() store.Store { return s.Store }

func (s *observed) Ping(ctx context.Context, ns string, batch []store.Sighting) ([]lastseen.State, error) {
	begun := s.calls.now()
	states, err := s.Store.Ping(ctx, ns, batch)
	s.calls.done(opPing, begun, err)
	return states, err
}

func (s *observed) Leave(ctx context.Context, ns string, batch []store.Sighting) ([]lastseen.State, error) {
	begun := s.calls.now()
	states, err := s.Store.Leave(ctx, ns, batch)
	s.calls.done(opLeave, begun, err)
	return states, err
}

func (s *observed) Lookup(ctx context.Context, ns string, users []string) ([]lastseen.State, error) {
	begun := s.calls.now()
	states, err := s.Store.Lookup(ctx, ns, users)
	s.calls.done(opLookup, begun, err)
	return states, err
}

func (s *observed) Count(ctx context.Context, ns string, ranges []lastseen.Range) ([]int64, error) {
	begun := s.calls.now()
	counts, err := s.Store.Count(ctx, ns, ranges)
	s.calls.done(opCount, begun, err)
	return counts, err
}

func (s *observed) Newest(ctx context.Context, ns string) (lastseen.Instant, error) {
	begun := s.calls.now()
	newest, err := s.Store.Newest(ctx, ns)
	s.calls.done(opNewest, begun, err)
	return newest, err
}

func (s *observed) List(ctx context.Context, ns string, q store.ListQuery) ([]store.Record, error) {
	begun := s.calls.now()
	page, err := s.Store.List(ctx, ns, q)
	s.calls.done(opList, begun, err)
	return page, err
}

func (s *observed) Forget(ctx context.Context, ns, user string) error {
	begun := s.calls.now()
	err := s.Store.Forget(ctx, ns, user)
	s.calls.done(opForget, begun, err)
	return err
}

func (s *observed) Trim(ctx context.Context, ns string, q store.TrimQuery) (store.TrimResult, error) {
	begun := s.calls.now()
	result, err := s.Store.Trim(ctx, ns, q)
	s.calls.done(opTrim, begun, err)
	return result, err
}

func (s *observed) Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error) {
	begun := s.calls.now()
	infos, err := s.Store.Namespaces(ctx, after, limit)
	s.calls.done(opNamespaces, begun, err)
	return infos, err
}

func (s *observed) Exist(ctx context.Context, namespaces []string) ([]bool, error) {
	begun := s.calls.now()
	exist, err := s.Store.Exist(ctx, namespaces)
	s.calls.done(opExist, begun, err)
	return exist, err
}

func (s *observed) Register(ctx context.Context, namespaces []string) error {
	begun := s.calls.now()
	err := s.Store.Register(ctx, namespaces)
	s.calls.done(opRegister, begun, err)
	return err
}

func (s *observed) RemoveEmpty(ctx context.Context, ns string) (bool, error) {
	begun := s.calls.now()
	removed, err := s.Store.RemoveEmpty(ctx, ns)
	s.calls.done(opRemoveEmpty, begun, err)
	return removed, err
}

func (s *observed) DeleteNamespace(ctx context.Context, ns string) error {
	begun := s.calls.now()
	err := s.Store.DeleteNamespace(ctx, ns)
	s.calls.done(opDeleteNamespace, begun, err)
	return err
}

func (s *observed) Lease(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	begun := s.calls.now()
	granted, err := s.Store.Lease(ctx, name, ttl)
	s.calls.done(opLease, begun, err)
	return granted, err
}

func (s *observed) Ready(ctx context.Context) error {
	begun := s.calls.now()
	err := s.Store.Ready(ctx)
	s.calls.done(opReady, begun, err)
	return err
}

type observedBatcher struct {
	observed
	batcher store.Batcher // the same store
}

func (s *observedBatcher) PingBatches(ctx context.Context, batches []*store.Batch[store.Sighting]) {
	begun := s.calls.now()
	s.batcher.PingBatches(ctx, batches)
	s.calls.done(opPing, begun, firstError(batches))
}

func (s *observedBatcher) LookupBatches(ctx context.Context, batches []*store.Batch[string]) {
	begun := s.calls.now()
	s.batcher.LookupBatches(ctx, batches)
	s.calls.done(opLookup, begun, firstError(batches))
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
