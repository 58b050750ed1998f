package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file keeps the list of namespaces, and how each is stored.

// admit registers namespaces without a meta, which were verified and are about to be written to. The limit on
// namespaces applies to those without members.
func (s *Store) admit(ctx context.Context, all []*resolvedNamespace) {
	all = slices.DeleteFunc(slices.Clone(all), func(c *resolvedNamespace) bool { return c.err != nil || c.hasMeta })
	var populated, empty []*resolvedNamespace
	for _, c := range all {
		if c.exists {
			populated = append(populated, c)
		} else {
			empty = append(empty, c)
		}
	}
	s.register(ctx, populated, 0)
	s.register(ctx, empty, s.maxNamespaces)
}

// register adds namespaces to the list while it has fewer than limit names (0 for any number), then writes missing
// metas, and verifies them: another server may have written another one. A namespace with a meta is always in the list.
func (s *Store) register(ctx context.Context, all []*resolvedNamespace, limit int) {
	if len(all) == 0 {
		return
	}
	for _, c := range all {
		s.metaCache.recheck(c.name)
	}
	err := s.writeNames(ctx, all, limit)
	added := slices.DeleteFunc(slices.Clone(all), func(c *resolvedNamespace) bool { return c.err != nil })
	if err == nil {
		err = s.writeMetas(ctx, added)
	}
	if err != nil {
		for _, c := range all {
			c.err = err
		}
		return
	}
	s.verify(ctx, added)
}

// maxNames bounds the names of one call, so that none keeps Redis busy for long.
const maxNames = 512

// writeNames adds namespaces to the list. It sets the error of those that exceed the limit.
func (s *Store) writeNames(ctx context.Context, all []*resolvedNamespace, limit int) error {
	for part := range slices.Chunk(all, maxNames) {
		args := []any{limit}
		for _, c := range part {
			args = append(args, c.name)
		}
		replies, err := s.client.RunInts(ctx, len(part), redisclient.Call{
			Script: scripts.Register, Key: s.keys.registry(), Args: args,
		})
		if err != nil {
			return err
		}
		for i, c := range part {
			if listed := replies[0][i] == 1; !listed {
				c.err = fmt.Errorf("%w: %q would exceed the limit of %d", store.ErrNamespaceLimit, c.name, limit)
			}
		}
	}
	return nil
}

func (s *Store) writeMetas(ctx context.Context, all []*resolvedNamespace) error {
	pipe := s.client.Pipeline()
	for _, c := range all {
		pipe.HSetNX(ctx, s.keys.meta(), c.name, c.meta().String())
	}
	_, err := pipe.Exec(ctx)
	return redisclient.Translate(err)
}

// Register implements [store.Store]. Registered namespaces cost two round trips. The error names all namespaces that
// this server cannot serve.
func (s *Store) Register(ctx context.Context, namespaces []string) error {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return err
	}
	defer cancel()
	if len(namespaces) == 0 {
		return nil
	}
	all := make([]*resolvedNamespace, len(namespaces))
	for i, name := range namespaces {
		all[i] = &resolvedNamespace{namespace: s.keys.namespace(name)}
		s.metaCache.recheck(name)
	}
	s.verify(ctx, all)
	listed, err := s.listed(ctx, namespaces)
	if err != nil {
		return err
	}
	var missing []*resolvedNamespace
	for i, c := range all {
		if c.err == nil && (!c.hasMeta || !listed[i]) {
			missing = append(missing, c)
		}
	}
	s.register(ctx, missing, 0)
	return refused(all)
}

// Exist implements [store.Store].
func (s *Store) Exist(ctx context.Context, namespaces []string) ([]bool, error) {
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.listed(ctx, namespaces)
}

// listed reports which names are in the list of namespaces, in one round trip.
func (s *Store) listed(ctx context.Context, names []string) ([]bool, error) {
	pipe := s.client.Pipeline()
	for part := range slices.Chunk(names, maxNames) {
		args := []any{"zmscore", s.keys.registry()}
		for _, name := range part {
			args = append(args, name)
		}
		pipe.Do(ctx, args...) // ZMScore would return 0 for nil, and all scores are 0
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil {
		return nil, redisclient.Translate(err)
	}
	listed := make([]bool, 0, len(names))
	for _, cmd := range cmds {
		for _, score := range cmd.(*redis.Cmd).Val().([]any) {
			listed = append(listed, score != nil)
		}
	}
	return listed, nil
}

// confirmNames adds the names to the list that it has lost, of namespaces that this server uses: jobs such as retention
// visit only what is in the list. Those without a meta were deleted, or are registered at the next write.
func (s *Store) confirmNames(ctx context.Context) {
	for names := range slices.Chunk(s.metaCache.recent(), maxNames) {
		if err := s.listLost(ctx, names); err != nil {
			return // the next minute comes
		}
	}
}

func (s *Store) listLost(ctx context.Context, names []string) error {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return err
	}
	defer cancel()
	listed, err := s.listed(ctx, names)
	for i := 0; err == nil && i < len(names); i++ {
		if !listed[i] {
			_, err = s.listAgain(ctx, names[i])
		}
	}
	return err
}

// refused returns why namespaces cannot be served: the first error that is not about one of them, or else all.
func refused(all []*resolvedNamespace) (joined error) {
	for _, c := range all {
		switch {
		case errors.Is(c.err, store.ErrMismatch):
			joined = errors.Join(joined, c.err)
		case errors.Is(c.err, store.ErrWrongType):
			joined = errors.Join(joined, fmt.Errorf("namespace %q: %w", c.name, c.err))
		case c.err != nil:
			return c.err
		}
	}
	return joined
}

// Namespaces implements [store.Store]. Namespaces that this server would refuse to serve are listed, too: one of them
// must not hide all others.
func (s *Store) Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error) {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	names, err := s.namesAfter(ctx, s.keys.registry(), after, limit)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	metas, err := s.client.HMGet(ctx, s.keys.meta(), names...).Result()
	if err != nil {
		return nil, redisclient.Translate(err)
	}
	stored := make([]namespace, len(names))
	for i, name := range names {
		stored[i] = s.storedAs(name, metas[i])
	}
	newest, errs := s.newest(ctx, stored)
	infos := make([]store.NamespaceInfo, len(names))
	for i, name := range names {
		// If the key is of another type, or may not be read, only the name is known.
		if errs[i] != nil && !redisclient.IsOfKey(errs[i]) {
			return nil, errs[i]
		}
		infos[i] = store.NamespaceInfo{Name: name, Newest: newest[i]}
	}
	return infos, nil
}

// namesAfter returns up to limit names of a list after one; from the first one if it is "".
func (s *Store) namesAfter(ctx context.Context, list, after string, limit int) ([]string, error) {
	start := "-"
	if after != "" {
		start = "(" + after
	}
	page := redis.ZRangeArgs{Key: list, ByLex: true, Start: start, Stop: "+", Count: int64(limit)}
	names, err := s.client.ZRangeArgs(ctx, page).Result()
	return names, redisclient.Translate(err)
}

// DeleteNamespace implements [store.Store]. It removes the name before the data: a ping in between finds its key gone
// afterwards, or creates it again and registers it again.
func (s *Store) DeleteNamespace(ctx context.Context, name string) error {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err != nil {
		return err
	}
	defer cancel()
	if _, err := s.members(ctx, ns); err != nil {
		return err // UNLINK would also delete a key of another type, which is not ours
	}
	ctx = redisclient.Confirmed(ctx)
	if _, err := s.unregister(ctx, name); err != nil {
		return err
	}
	_, err = s.deleteShards(ctx, ns, "", false)
	if ns.hasSideKeys() {
		err = cmp.Or(err, s.deleteCalls(ctx, ns))
	}
	return err
}

// RemoveEmpty implements [store.Store]. Another server may write at any point: see docs/decisions/redis-keys.md.
func (s *Store) RemoveEmpty(ctx context.Context, name string) (bool, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err != nil {
		return false, err
	}
	defer cancel()
	if used, err := s.isUsed(ctx, ns); err != nil || used {
		return false, err
	}
	existed, err := s.unregister(ctx, name)
	if err != nil {
		return false, err
	}
	if used, err := s.isUsed(ctx, ns); err != nil || !used {
		if err == nil && ns.hasSideKeys() {
			_, err = s.deleteUnused(ctx, ns, false)
		}
		if err != nil {
			return false, err
		}
		listed, err := s.listAgain(ctx, name)
		return existed && !listed && err == nil, err
	}
	c := &resolvedNamespace{namespace: ns}
	s.register(ctx, []*resolvedNamespace{c}, 0)
	return false, c.err
}

// unregister removes the meta and the name of a namespace, and reports whether either existed. The meta goes
// first, since a namespace with a meta is always in the list. In a Cluster the parts of a pipeline are not in order.
func (s *Store) unregister(ctx context.Context, name string) (existed bool, err error) {
	s.metaCache.forget(name)
	metas, err := s.client.HDel(ctx, s.keys.meta(), name).Result()
	if err != nil {
		return false, redisclient.Translate(err)
	}
	names, err := s.client.ZRem(ctx, s.keys.registry(), name).Result()
	s.metaCache.forget(name) // another call may have checked it meanwhile
	return metas+names > 0, redisclient.Translate(err)
}

// listAgain adds the name of a namespace that has a meta, and reports whether it has one: another call registered it
// between the two steps of unregister, and its users left since. A namespace with a meta has to be in the list.
func (s *Store) listAgain(ctx context.Context, name string) (bool, error) {
	found, err := s.client.HExists(ctx, s.keys.meta(), name).Result()
	if err == nil && found {
		err = s.client.ZAddNX(ctx, s.keys.registry(), redis.Z{Member: name}).Err()
	}
	return found, redisclient.Translate(err)
}

// isUsed reports whether a namespace has users, users with an availability that others see, or an ongoing call.
func (s *Store) isUsed(ctx context.Context, ns namespace) (bool, error) {
	if n, err := s.members(ctx, ns); err != nil || n > 0 {
		return n > 0, err
	}
	if !ns.hasSideKeys() {
		return false, nil
	}
	ongoing, err := s.anyOngoing(ctx, ns)
	if err != nil || ongoing {
		return ongoing, err
	}
	return s.deleteUnused(ctx, ns, true)
}

// members returns how many members and contacts a namespace has.
func (s *Store) members(ctx context.Context, ns namespace) (int64, error) {
	pipe := s.client.Pipeline()
	var cmds []*redis.IntCmd
	for _, key := range ns.all() {
		cmds = append(cmds, pipe.ZCard(ctx, key))
		if ns.hasSideKeys() {
			cmds = append(cmds, pipe.ZCard(ctx, ns.sideKey(key, 'c')))
		}
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	return redisclient.Sum(cmds)
}
