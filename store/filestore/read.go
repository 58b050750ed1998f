package filestore

import (
	"cmp"
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// read runs f on the index, which does not change during the call.
func (s *Store) read(ctx context.Context, f func(*index)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.writer.closed {
		return store.ErrClosed
	}
	f(&s.index)
	return nil
}

// readIn runs f on a namespace, if it exists.
func (s *Store) readIn(ctx context.Context, name string, f func(*namespace)) error {
	return s.read(ctx, func(x *index) {
		if n, ok := x.namespaces.Get(name); ok {
			f(n)
		}
	})
}

// Lookup implements [store.Store].
func (s *Store) Lookup(ctx context.Context, name string, users []string) ([]lastseen.State, error) {
	states := make([]lastseen.State, len(users))
	err := s.readIn(ctx, name, func(n *namespace) {
		for i, user := range users {
			states[i] = n.get(user)
		}
	})
	return states, err
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, name string, q store.ListQuery) (page []store.Record, err error) {
	var failed error
	err = s.readIn(ctx, name, func(n *namespace) { page, failed = n.list(q) })
	return page, cmp.Or(err, failed)
}

// Count implements [store.Store].
func (s *Store) Count(ctx context.Context, name string, ranges []lastseen.Range) ([]int64, error) {
	counts := make([]int64, len(ranges))
	err := s.readIn(ctx, name, func(n *namespace) {
		for i, r := range ranges {
			counts[i] = n.count(r)
		}
	})
	return counts, err
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, name string) (newest lastseen.Instant, err error) {
	err = s.readIn(ctx, name, func(n *namespace) { newest = n.newest() })
	return newest, err
}

// Namespaces implements [store.Store].
func (s *Store) Namespaces(ctx context.Context, after string, limit int) (infos []store.NamespaceInfo, err error) {
	err = s.read(ctx, func(x *index) {
		x.namespaces.Ascend(after, func(name string, n *namespace) bool {
			if name != after {
				infos = append(infos, store.NamespaceInfo{Name: name, Newest: n.newest()})
			}
			return len(infos) < limit
		})
	})
	return infos, err
}
