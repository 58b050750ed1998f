package redisstore

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// Namespaces implements [store.Store]. Namespaces that this server would refuse to serve are listed,
// too: one of them must not hide all others.
func (s *Store) Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error) {
	ctx, cancel, err := s.operation(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	bounded, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	start := "-"
	if after != "" {
		start = "(" + after
	}
	page := redis.ZRangeArgs{Key: s.keys.registry(), ByLex: true, Start: start, Stop: "+", Count: int64(limit)}
	names, err := s.client.ZRangeArgs(bounded, page).Result()
	if err != nil || len(names) == 0 {
		return nil, translate(err)
	}
	metas, err := s.client.HMGet(bounded, s.keys.meta(), names...).Result()
	if err != nil {
		return nil, translate(err)
	}
	return s.infos(ctx, names, metas)
}

// infos describes namespaces. Of one whose key is of another type, or may not be read, nothing is known but
// the name.
func (s *Store) infos(ctx context.Context, names []string, metas []any) ([]store.NamespaceInfo, error) {
	places := make([]stored, len(names))
	for i, name := range names {
		places[i] = s.storedAs(name, metas[i])
	}
	newest, err := s.newest(ctx, places)
	if err != nil {
		return nil, err
	}
	infos := make([]store.NamespaceInfo, len(names))
	for i, name := range names {
		if err := newest[i].err; err != nil && !isOfKey(err) {
			return nil, err
		}
		infos[i] = store.NamespaceInfo{Name: name, Newest: newest[i].at}
	}
	return infos, nil
}

// DeleteNamespace implements [store.Store]. The name goes before the data: a ping in between finds
// its key gone afterwards, or creates it again and registers it again.
func (s *Store) DeleteNamespace(ctx context.Context, name string) error {
	ctx, end, err := s.operation(ctx)
	if err != nil {
		return err
	}
	defer end()
	ns := s.keys.namespace(name)
	ctx, cancel, err := s.enter(ctx, ns)
	if err != nil {
		return err
	}
	defer cancel()
	if _, err := s.members(ctx, ns); err != nil {
		return err // a key is not a sorted set, and so not ours: UNLINK would not mind
	}
	if _, err := s.unregister(ctx, name); err != nil {
		return err
	}
	pipe := s.client.Pipeline()
	for _, key := range ns.all() {
		pipe.Unlink(ctx, key)
	}
	_, err = pipe.Exec(ctx)
	return translate(err)
}

// RemoveEmpty implements [store.Store]. A write by another server that comes between looking and removing is in the
// key when this one looks again, and the namespace is registered again. One that comes later makes the key, and the
// server that wrote it registers the namespace, even if that server believes that it is registered: see ping.lua.
func (s *Store) RemoveEmpty(ctx context.Context, name string) (bool, error) {
	ctx, end, err := s.operation(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	ns := s.keys.namespace(name)
	ctx, cancel, err := s.enter(ctx, ns)
	if err != nil {
		return false, err
	}
	defer cancel()
	if n, err := s.members(ctx, ns); err != nil || n > 0 {
		return false, err
	}
	existed, err := s.unregister(ctx, name)
	if err != nil {
		return false, err
	}
	if n, err := s.members(ctx, ns); err != nil || n == 0 {
		return existed && err == nil, err
	}
	return false, s.register(ctx, []namespace{ns}, 0)[0]
}

// unregister removes the name of a namespace and its meta, and reports whether there was one of them. The meta goes
// first: where there is a meta, there is the name. In a Cluster the parts of a pipeline are not in order.
func (s *Store) unregister(ctx context.Context, name string) (existed bool, err error) {
	s.checked.Delete(name)
	s.agreed.Delete(name)
	metas, err := s.client.HDel(ctx, s.keys.meta(), name).Result()
	if err != nil {
		return false, translate(err)
	}
	names, err := s.client.ZRem(ctx, s.keys.registry(), name).Result()
	s.checked.Delete(name) // somebody may have asked meanwhile
	return metas+names > 0, translate(err)
}

// members returns how many members a namespace has, hidden ones included.
func (s *Store) members(ctx context.Context, ns namespace) (n int64, err error) {
	pipe := s.client.Pipeline()
	var cmds []*redis.IntCmd
	for _, key := range ns.all() {
		cmds = append(cmds, pipe.ZCard(ctx, key))
	}
	_, _ = pipe.Exec(ctx) // the error is also in the commands it befell
	for _, cmd := range cmds {
		n += cmd.Val()
		err = cmp.Or(err, translate(cmd.Err()))
	}
	return n, err
}
