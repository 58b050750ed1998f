package redisstore

import (
	"context"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/rediscalls"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file gives package rediscalls its namespaces, and records who is in a call: see docs/decisions/calls.md.

// callNamespace is a [rediscalls.Namespace].
type callNamespace struct {
	*resolvedNamespace
	s *Store
}

// openCalls is a [rediscalls.Open].
func (s *Store) openCalls(
	ctx context.Context, name string,
) (context.Context, context.CancelFunc, rediscalls.Namespace, error) {
	ctx, cancel, c, err := s.openWith(ctx, 2*s.client.Timeout, name, s.verify)
	if err != nil {
		return nil, nil, nil, err
	}
	if !c.hasSideKeys() {
		cancel()
		return nil, nil, nil, store.ErrNoCalls
	}
	return ctx, cancel, callNamespace{c, s}, nil
}

func (c callNamespace) Name() string           { return c.name }
func (c callNamespace) Key(word string) string { return c.namedKey(word, c.shard(0)) }
func (c callNamespace) Recheck()               { c.s.metaCache.recheck(c.name) }
func (c callNamespace) Listed() bool           { return c.s.metaCache.load(c.name).calls }
func (c callNamespace) SetListed(listed bool)  { c.s.metaCache.setCalls(c.name, listed) }

func (c callNamespace) Admit(ctx context.Context) error {
	c.s.admit(ctx, []*resolvedNamespace{c.resolvedNamespace})
	return c.err
}

func (c callNamespace) Register(ctx context.Context) error {
	c.s.register(ctx, []*resolvedNamespace{c.resolvedNamespace}, 0)
	return c.err
}

func (c callNamespace) Warn(about, message string, args ...any) {
	c.s.warnOnce(c.namespace, about, message, args...)
}

// SetInCalls appends entries to the feed where that changes what is published. It creates no namespace, and 0 leaves
// nothing of a user who has no other details.
func (c callNamespace) SetInCalls(ctx context.Context, in []rediscalls.InCall) error {
	if !c.hasMeta {
		return nil
	}
	fresh, err := c.s.writeInCalls(ctx, c.namespace, in)
	if err == nil && fresh {
		err = c.s.keepInCalls(ctx, c.resolvedNamespace, in)
	}
	return err
}

// forgetCalls deletes the calls of a user. Ongoing calls end.
func (s *Store) forgetCalls(ctx context.Context, ns namespace, user string) error {
	if !ns.hasSideKeys() {
		return nil
	}
	listed, err := rediscalls.IsListed(ctx, s.calls, ns.name)
	if err != nil || !listed {
		return err
	}
	c := &resolvedNamespace{namespace: ns}
	if s.verify(ctx, []*resolvedNamespace{c}); c.err != nil {
		return c.err
	}
	return rediscalls.Forget(ctx, s.calls, callNamespace{c, s}, user)
}

// CallNamespaces implements [store.Store].
func (s *Store) CallNamespaces(ctx context.Context, after string, limit int) ([]string, error) {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.namesAfter(ctx, s.keys.calling(), after, limit)
}

// writeInCalls runs incall.lua, and reports whether a key of details is new.
func (s *Store) writeInCalls(ctx context.Context, ns namespace, in []rediscalls.InCall) (fresh bool, err error) {
	chunks := ns.split(len(in), maxFeedChunk, func(i int) string { return in[i].User })
	calls := make([]shardCall, len(chunks))
	for i, chunk := range chunks {
		calls[i] = shardCall{
			namespace: ns, shard: chunk.key, script: scripts.InCall, uses: "f", creates: "de", appends: true,
		}
		for _, at := range chunk.index {
			calls[i].args = append(calls[i].args, &in[at].User, int64(in[at].Until))
		}
	}
	cmds, err := s.runShardsAll(ctx, calls)
	for _, cmd := range cmds {
		fresh = fresh || cmd.Val() == int64(1)
	}
	return fresh, err
}

// keepInCalls deletes copies in new keys of details again if another server has deleted the namespace since it was
// checked.
func (s *Store) keepInCalls(ctx context.Context, c *resolvedNamespace, in []rediscalls.InCall) error {
	s.metaCache.recheck(c.name)
	again := &resolvedNamespace{namespace: c.namespace}
	if s.verify(ctx, []*resolvedNamespace{again}); again.err != nil || again.hasMeta {
		return again.err
	}
	none := make([]rediscalls.InCall, len(in))
	for i := range in {
		none[i].User = in[i].User
	}
	if _, err := s.writeInCalls(ctx, c.namespace, none); err != nil {
		return err
	}
	_, err := s.deleteUnused(ctx, c.namespace, false)
	return err
}
