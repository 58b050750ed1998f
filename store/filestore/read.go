package filestore

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// read runs f on the index, which does not change during the call.
func (s *Store) read(ctx context.Context, f func(*index) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.writer.closed {
		return store.ErrClosed
	}
	return f(&s.index)
}

// readIn runs f on a namespace, if it exists.
func (s *Store) readIn(ctx context.Context, name string, f func(*namespace) error) error {
	return s.read(ctx, func(x *index) error {
		if n, ok := x.namespaces.Get(name); ok {
			return f(n)
		}
		return nil
	})
}

// Lookup implements [store.Store].
func (s *Store) Lookup(ctx context.Context, name string, users []string) ([]lastseen.State, error) {
	states := make([]lastseen.State, len(users))
	err := s.readIn(ctx, name, func(n *namespace) error {
		for i, user := range users {
			states[i] = n.get(user)
		}
		return nil
	})
	return states, err
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, name string, q store.ListQuery) (page []store.Record, err error) {
	err = s.readIn(ctx, name, func(n *namespace) error {
		page, err = n.list(q)
		return err
	})
	return page, err
}

// Count implements [store.Store].
func (s *Store) Count(ctx context.Context, name string, ranges []lastseen.Range) ([]int64, error) {
	counts := make([]int64, len(ranges))
	err := s.readIn(ctx, name, func(n *namespace) error {
		for i, r := range ranges {
			counts[i] = n.count(r)
		}
		return nil
	})
	return counts, err
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, name string) (newest lastseen.Instant, err error) {
	err = s.readIn(ctx, name, func(n *namespace) error {
		newest = n.newest()
		return nil
	})
	return newest, err
}

// Namespaces implements [store.Store].
func (s *Store) Namespaces(ctx context.Context, after string, limit int) (infos []store.NamespaceInfo, err error) {
	err = s.read(ctx, func(x *index) error {
		x.namespaces.Ascend(after, func(name string, n *namespace) bool {
			if name != after {
				infos = append(infos, store.NamespaceInfo{Name: name, Newest: n.newest()})
			}
			return len(infos) < limit
		})
		return nil
	})
	return infos, err
}
