package filestore

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// read runs f on the index, which does not change meanwhile.
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

// Lookup implements [store.Store].
func (s *Store) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	states := make([]lastseen.State, len(users))
	err := s.read(ctx, func(x *index) error {
		for i, user := range users {
			states[i] = x.get(namespace, user)
		}
		return nil
	})
	return states, err
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, namespace string, q store.ListQuery) (page []store.Record, err error) {
	err = s.read(ctx, func(x *index) error {
		page, err = x.list(namespace, q)
		return err
	})
	return page, err
}

// Count implements [store.Store].
func (s *Store) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	counts := make([]int64, len(ranges))
	err := s.read(ctx, func(x *index) error {
		for i, r := range ranges {
			counts[i] = x.count(namespace, r)
		}
		return nil
	})
	return counts, err
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, namespace string) (newest lastseen.Instant, err error) {
	err = s.read(ctx, func(x *index) error {
		newest = x.newest(namespace)
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
