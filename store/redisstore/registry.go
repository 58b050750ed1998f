package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// meta describes how a namespace is stored: shard count, score unit, version of the shard hash, and
// its key if that is not the one that its name gives it.
func (n namespace) meta() string {
	meta := fmt.Sprintf("shards=%d unit=%s hash=%s", n.shards, n.unit, hashVersion)
	if !n.own {
		meta += " key=" + n.key
	}
	return meta
}

// admit makes sure, once, that a namespace is registered and stored as this server stores it, before
// it is written to.
func (s *Store) admit(ctx context.Context, ns namespace) error {
	if err := s.check(ctx, ns); err != nil {
		return err
	}
	if _, done := s.checked.Load(ns.name); done {
		return nil
	}
	return s.register(ctx, ns)
}

// register writes the namespace's name and then its meta, unless it has one: whoever finds a meta may
// rely on the name.
func (s *Store) register(ctx context.Context, ns namespace) error {
	s.checked.Delete(ns.name)
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := s.ours(bounded, ns); err != nil {
		return err
	}
	if err := s.client.ZAddNX(bounded, s.keys.registry(), redis.Z{Member: ns.name}).Err(); err != nil {
		return translate(err)
	}
	if err := s.client.HSetNX(bounded, s.keys.meta(), ns.name, ns.meta()).Err(); err != nil {
		return translate(err)
	}
	return s.check(ctx, ns)
}

// Register implements [store.Store]. The error names all namespaces that this server cannot serve: those
// that are stored otherwise than it stores them, or whose key holds something else.
func (s *Store) Register(ctx context.Context, namespaces []string) error {
	var refused error
	if err := s.alive(ctx); err != nil {
		return err
	}
	for _, name := range namespaces {
		switch err := s.register(ctx, s.keys.namespace(name)); {
		case errors.Is(err, store.ErrMismatch):
			refused = errors.Join(refused, err)
		case errors.Is(err, store.ErrWrongType):
			refused = errors.Join(refused, fmt.Errorf("namespace %q: %w", name, err))
		case err != nil:
			return err
		}
	}
	return refused
}

// check makes sure, now and then, that a namespace is stored as this server stores it. One without meta
// has never been pinged: there is nothing to agree on yet. In a Cluster, one Redis that is away must not
// take all namespaces with it: while the meta cannot be read, what was agreed on holds.
func (s *Store) check(ctx context.Context, ns namespace) error {
	if _, done := s.checked.Load(ns.name); done {
		return nil
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if ns.foreign {
		if err := s.checkForeign(bounded, ns); err != nil {
			return err
		}
	}
	meta, err := s.client.HMGet(bounded, s.keys.meta(), ns.name).Result()
	switch err = translate(err); {
	case errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil && s.agreedInCluster(ns):
		s.checked.Store(ns.name, struct{}{})
		return nil
	case err != nil:
		return err
	}
	return s.agree(ns, meta[0])
}

// agreedInCluster reports whether the last meta that could be read was that of this server, and the
// namespace may be on another Redis than the meta.
func (s *Store) agreedInCluster(ns namespace) bool {
	_, agreed := s.agreed.Load(ns.name)
	return agreed && s.inCluster()
}

// agree compares a namespace's meta, nil if it has none, with what this server would write.
func (s *Store) agree(ns namespace, meta any) error {
	if meta != ns.meta() {
		s.agreed.Delete(ns.name)
	}
	switch meta {
	case nil:
		return nil
	case ns.meta():
		s.agreed.Store(ns.name, struct{}{})
		s.checked.Store(ns.name, struct{}{})
		return nil
	default:
		return fmt.Errorf("%w: namespace %q is stored with %s, this server is set to %s",
			store.ErrMismatch, ns.name, meta, ns.meta())
	}
}

// enter makes sure of check's promise and begins a call.
func (s *Store) enter(ctx context.Context, ns namespace) (context.Context, context.CancelFunc, error) {
	if err := s.check(ctx, ns); err != nil {
		return nil, nil, err
	}
	return s.begin(ctx)
}

// storedAs returns where a namespace was put by whoever wrote its meta, which may be a server that is
// set differently; no keys if the meta says what this version does not know.
func (s *Store) storedAs(name string, meta any) stored {
	ns := s.keys.namespace(name)
	text, ok := meta.(string)
	if !ok || text == ns.meta() {
		return stored{ns.all(), ns.encoding} // without meta it is being registered just now
	}
	text, key, foreign := strings.Cut(text, " key=")
	theirs := keyspace{prefix: s.keys.prefix, layouts: map[string]Layout{}}
	var unit, hash string
	_, err := fmt.Sscanf(text, "shards=%d unit=%s hash=%s", &theirs.shards, &unit, &hash)
	layout := Layout{Key: key, Unit: Unit(unit), Shards: theirs.shards}
	if err != nil || checkLayout(layout) != nil || foreign && key == "" {
		return stored{}
	}
	theirs.layouts[name] = layout
	ns = theirs.namespace(name)
	return stored{ns.all(), ns.encoding}
}

// Namespaces implements [store.Store]. Namespaces that this server would refuse to serve are listed,
// too: one of them must not hide all others.
func (s *Store) Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error) {
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
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
// its key gone afterwards, or creates it anew and registers it again.
func (s *Store) DeleteNamespace(ctx context.Context, namespace string) error {
	ns := s.keys.namespace(namespace)
	ctx, cancel, err := s.enter(ctx, ns)
	if err != nil {
		return err
	}
	defer cancel()
	s.checked.Delete(namespace)
	s.agreed.Delete(namespace)
	if err := s.ours(ctx, ns); err != nil {
		return err
	}
	// One after the other: in a Cluster the parts of a pipeline are not in order.
	if err := s.client.HDel(ctx, s.keys.meta(), namespace).Err(); err != nil {
		return translate(err)
	}
	if err := s.client.ZRem(ctx, s.keys.registry(), namespace).Err(); err != nil {
		return translate(err)
	}
	pipe := s.client.Pipeline()
	for _, key := range ns.all() {
		pipe.Unlink(ctx, key)
	}
	_, err = pipe.Exec(ctx)
	return translate(err)
}

// ours returns an error if a key of the namespace is no sorted set, and so somebody else's: UNLINK
// would not mind.
func (s *Store) ours(ctx context.Context, ns namespace) error {
	pipe := s.client.Pipeline()
	for _, key := range ns.all() {
		pipe.ZCard(ctx, key)
	}
	_, err := pipe.Exec(ctx)
	return translate(err)
}
