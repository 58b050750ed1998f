package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// admit makes sure, now and then, that namespaces are registered and stored as this server stores them,
// before they are written to. It returns an error, or nil, for each.
func (s *Store) admit(ctx context.Context, all []namespace) []error {
	errs, unknown := s.inquire(ctx, all)
	for k, err := range s.register(ctx, pick(all, unknown)) {
		errs[unknown[k]] = err
	}
	return errs
}

// pick returns the namespaces at some places.
func pick(all []namespace, places []int) []namespace {
	picked := make([]namespace, len(places))
	for k, i := range places {
		picked[k] = all[i]
	}
	return picked
}

// register writes the namespaces' names and then their metas, unless they have one: whoever finds a meta
// may rely on the name. It returns an error, or nil, for each.
func (s *Store) register(ctx context.Context, all []namespace) []error {
	if len(all) == 0 {
		return nil
	}
	for _, ns := range all {
		s.checked.Delete(ns.name)
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(all))
	}
	defer cancel()
	errs := s.ours(bounded, all)
	var names []redis.Z
	for i, ns := range all {
		if errs[i] == nil {
			names = append(names, redis.Z{Member: ns.name})
		}
	}
	if len(names) == 0 {
		return errs
	}
	err = translate(s.client.ZAddNX(bounded, s.keys.registry(), names...).Err())
	if err == nil {
		err = s.writeMetas(bounded, all, errs)
	}
	for i, refused := range s.checkAll(ctx, all) {
		errs[i] = cmp.Or(errs[i], err, refused)
	}
	return errs
}

// writeMetas writes the metas of those namespaces that have no error, unless they have one.
func (s *Store) writeMetas(ctx context.Context, all []namespace, errs []error) error {
	pipe := s.client.Pipeline()
	for i, ns := range all {
		if errs[i] == nil {
			pipe.HSetNX(ctx, s.keys.meta(), ns.name, ns.meta())
		}
	}
	_, err := pipe.Exec(ctx)
	return translate(err)
}

// Register implements [store.Store]. The error names all namespaces that this server cannot serve: those
// that are stored otherwise than it stores them, or whose key holds something else.
func (s *Store) Register(ctx context.Context, namespaces []string) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	all := make([]namespace, len(namespaces))
	for i, name := range namespaces {
		all[i] = s.keys.namespace(name)
	}
	var refused error
	for i, err := range s.register(ctx, all) {
		switch {
		case errors.Is(err, store.ErrMismatch):
			refused = errors.Join(refused, err)
		case errors.Is(err, store.ErrWrongType):
			refused = errors.Join(refused, fmt.Errorf("namespace %q: %w", namespaces[i], err))
		case err != nil:
			return err
		}
	}
	return refused
}

// check is checkAll for one namespace.
func (s *Store) check(ctx context.Context, ns namespace) error {
	if _, done := s.checked.Load(ns.name); done {
		return nil
	}
	return s.checkAll(ctx, []namespace{ns})[0]
}

// checkAll makes sure, now and then, that namespaces are stored as this server stores them. It returns an
// error, or nil, for each.
func (s *Store) checkAll(ctx context.Context, all []namespace) []error {
	errs, _ := s.inquire(ctx, all)
	return errs
}

// inquire is checkAll; it also returns which namespaces are unknown. One without meta has never been pinged:
// there is nothing to agree on yet. In a Cluster, one Redis that is away must not take all namespaces with
// it: while the metas cannot be read, what was agreed on holds.
func (s *Store) inquire(ctx context.Context, all []namespace) (errs []error, unknown []int) {
	errs = make([]error, len(all))
	var ask []int
	var names []string
	for i, ns := range all {
		if _, done := s.checked.Load(ns.name); !done {
			ask, names = append(ask, i), append(names, ns.name)
		}
	}
	if len(ask) == 0 {
		return errs, nil
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(all)), nil
	}
	defer cancel()
	var foreign []int
	for _, i := range ask {
		if all[i].foreign {
			foreign = append(foreign, i)
		}
	}
	for k, err := range s.checkForeign(bounded, pick(all, foreign)) {
		errs[foreign[k]] = err
	}
	metas, err := s.client.HMGet(bounded, s.keys.meta(), names...).Result()
	err = translate(err)
	held := errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil
	for k, i := range ask {
		switch {
		case errs[i] != nil:
		case err == nil && metas[k] == nil:
			s.agreed.Delete(all[i].name)
			unknown = append(unknown, i)
		case err == nil:
			errs[i] = s.agree(all[i], metas[k])
		case held && s.agreedInCluster(all[i]):
			s.checked.Store(all[i].name, struct{}{})
		default:
			errs[i] = err
		}
	}
	return errs, unknown
}

// agreedInCluster reports whether the last meta that could be read was that of this server, and the
// namespace may be on another Redis than the meta.
func (s *Store) agreedInCluster(ns namespace) bool {
	_, agreed := s.agreed.Load(ns.name)
	return agreed && s.inCluster()
}

// agree compares a namespace's meta with what this server would write.
func (s *Store) agree(ns namespace, meta any) error {
	if meta != ns.meta() {
		s.agreed.Delete(ns.name)
		return fmt.Errorf("%w: namespace %q is stored with %s, this server is set to %s",
			store.ErrMismatch, ns.name, meta, ns.meta())
	}
	s.agreed.Store(ns.name, struct{}{})
	s.checked.Store(ns.name, struct{}{})
	return nil
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
func (s *Store) DeleteNamespace(ctx context.Context, name string) error {
	ns := s.keys.namespace(name)
	ctx, cancel, err := s.enter(ctx, ns)
	if err != nil {
		return err
	}
	defer cancel()
	s.checked.Delete(name)
	s.agreed.Delete(name)
	if err := s.ours(ctx, []namespace{ns})[0]; err != nil {
		return err
	}
	// One after the other: in a Cluster the parts of a pipeline are not in order.
	if err := s.client.HDel(ctx, s.keys.meta(), name).Err(); err != nil {
		return translate(err)
	}
	if err := s.client.ZRem(ctx, s.keys.registry(), name).Err(); err != nil {
		return translate(err)
	}
	pipe := s.client.Pipeline()
	for _, key := range ns.all() {
		pipe.Unlink(ctx, key)
	}
	_, err = pipe.Exec(ctx)
	return translate(err)
}

// ours returns an error for each namespace of which a key is no sorted set, and so somebody else's:
// UNLINK would not mind.
func (s *Store) ours(ctx context.Context, all []namespace) []error {
	pipe := s.client.Pipeline()
	cmds := make([][]*redis.IntCmd, len(all))
	for i, ns := range all {
		for _, key := range ns.all() {
			cmds[i] = append(cmds[i], pipe.ZCard(ctx, key))
		}
	}
	_, _ = pipe.Exec(ctx) // the error is also in the commands it befell
	errs := make([]error, len(all))
	for i := range all {
		for _, cmd := range cmds[i] {
			errs[i] = cmp.Or(errs[i], translate(cmd.Err()))
		}
	}
	return errs
}
