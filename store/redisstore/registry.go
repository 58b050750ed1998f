package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lastseen/lastseen/store"
)

// admit makes sure, now and then, that namespaces are registered and stored as this server stores them,
// before they are written to. It returns an error, or nil, for each.
func (s *Store) admit(ctx context.Context, all []namespace) []error {
	errs, unknown := s.inquire(ctx, all)
	var known, fresh []int // of the unknown ones: those that have members already are not subject to the limit
	for _, u := range unknown {
		if u.exists {
			known = append(known, u.at)
		} else {
			fresh = append(fresh, u.at)
		}
	}
	for _, group := range []struct {
		at    []int
		limit int
	}{{known, 0}, {fresh, s.maxNamespaces}} {
		for k, err := range s.register(ctx, pick(all, group.at), group.limit) {
			errs[group.at[k]] = err
		}
	}
	return errs
}

// pick returns the items at some places.
func pick[T any](all []T, places []int) []T {
	picked := make([]T, len(places))
	for k, i := range places {
		picked[k] = all[i]
	}
	return picked
}

// register writes the namespaces' names, as long as there are fewer than limit (0 for any number), and then their
// metas, unless they have one: where there is a meta, there is the name. It returns an error, or nil, for each.
func (s *Store) register(ctx context.Context, all []namespace, limit int) []error {
	if len(all) == 0 {
		return nil
	}
	for _, ns := range all {
		s.checked.Delete(ns.name)
	}
	errs, err := s.enlist(ctx, all, limit)
	if err == nil {
		err = s.writeMetas(ctx, all, errs)
	}
	if err != nil {
		return slices.Repeat([]error{err}, len(all))
	}
	for i, refused := range s.checkAll(ctx, all) {
		errs[i] = cmp.Or(errs[i], refused)
	}
	return errs
}

// maxEnlisted bounds the names of one call, so that none keeps Redis busy for long.
const maxEnlisted = 512

// enlist writes the names of namespaces. It returns an error, or nil, for each.
func (s *Store) enlist(ctx context.Context, all []namespace, limit int) ([]error, error) {
	errs := make([]error, 0, len(all))
	for part := range slices.Chunk(all, maxEnlisted) {
		args := []any{limit}
		for _, ns := range part {
			args = append(args, ns.name)
		}
		cmds, err := s.runScript(ctx, scripts.register, []call{{key: s.keys.registry(), args: args}})
		if err != nil {
			return nil, err
		}
		listed, err := cmds[0].Int64Slice()
		if err != nil || len(listed) != len(part) {
			return nil, fmt.Errorf("script answered %v for %d names: %w", cmds[0].Val(), len(part), err)
		}
		for i, there := range listed {
			errs = append(errs, nil)
			if there == 0 {
				errs[len(errs)-1] = fmt.Errorf("%w: %q would be one more than %d", store.ErrNamespaceLimit, part[i].name, limit)
			}
		}
	}
	return errs, nil
}

// writeMetas writes the metas of those namespaces that have no error, unless they have one.
func (s *Store) writeMetas(ctx context.Context, all []namespace, errs []error) error {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	pipe := s.client.Pipeline()
	for i, ns := range all {
		if errs[i] == nil {
			pipe.HSetNX(ctx, s.keys.meta(), ns.name, ns.meta().String())
		}
	}
	_, err = pipe.Exec(ctx)
	return translate(err)
}

// Register implements [store.Store]. For namespaces that are registered it costs one round trip, so it can be called
// again and again: Redis may have lost them. The error names all namespaces that this server cannot serve: those
// that are stored otherwise than it stores them, or whose key holds something else.
func (s *Store) Register(ctx context.Context, namespaces []string) error {
	ctx, cancel, err := s.operation(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	all := make([]namespace, len(namespaces))
	for i, name := range namespaces {
		all[i] = s.keys.namespace(name)
		s.checked.Delete(name)
	}
	errs, missing, err := s.unregistered(ctx, all)
	if err != nil {
		return err
	}
	for k, err := range s.register(ctx, pick(all, missing), 0) {
		errs[missing[k]] = err
	}
	var refused error
	for i, err := range errs {
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

// unregistered returns which namespaces lack their name or their meta, and an error, or nil, for each: those with one
// cannot be served.
func (s *Store) unregistered(ctx context.Context, all []namespace) (errs []error, missing []int, err error) {
	errs, unknown := s.inquire(ctx, all)
	names := make([]string, len(all))
	for i, ns := range all {
		names[i] = ns.name
	}
	listed, err := s.listed(ctx, names)
	if err != nil {
		return nil, nil, err
	}
	lacks := make([]bool, len(all))
	for _, u := range unknown {
		lacks[u.at] = true
	}
	for i := range all {
		if errs[i] == nil && (lacks[i] || !listed[i]) {
			missing = append(missing, i)
		}
	}
	return errs, missing, nil
}

// listed reports which names are in the list of namespaces.
func (s *Store) listed(ctx context.Context, names []string) ([]bool, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	defer cancel()
	args := []any{"zmscore", s.keys.registry()}
	for _, name := range names {
		args = append(args, name)
	}
	scores, err := s.client.Do(ctx, args...).Slice()
	if err != nil {
		return nil, translate(err)
	}
	listed := make([]bool, len(names))
	for i := range listed {
		listed[i] = scores[i] != nil
	}
	return listed, nil
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

// unknown is a namespace without a meta.
type unknown struct {
	at     int  // its place
	exists bool // whether its key has members nevertheless
}

// inquire is checkAll; it also returns which namespaces have no meta. The sets of those are not known to be ours: they
// are looked into, as are those that other programs write. In a Cluster, one Redis that is away must not take all
// namespaces with it: while the metas cannot be read, what was agreed on holds.
func (s *Store) inquire(ctx context.Context, all []namespace) (errs []error, without []unknown) {
	errs = make([]error, len(all))
	var ask []int
	for i, ns := range all {
		if _, done := s.checked.Load(ns.name); !done {
			ask = append(ask, i)
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
	metas, err := s.metasOf(bounded, pick(all, ask))
	held := errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil
	var look []int
	var ours []bool
	for k, i := range ask {
		switch {
		case err == nil && metas[k] == nil:
			s.agreed.Delete(all[i].name)
			look, ours = append(look, i), append(ours, false)
			continue
		case err == nil:
			errs[i] = s.agree(all[i], metas[k])
		case held && s.agreedInCluster(all[i]):
		default:
			errs[i] = err
		}
		if errs[i] == nil && all[i].foreign {
			look, ours = append(look, i), append(ours, true)
		} else if errs[i] == nil {
			s.checked.Store(all[i].name, struct{}{})
		}
	}
	found, refused := s.lookInto(bounded, pick(all, look), ours)
	for k, i := range look {
		switch errs[i] = refused[k]; {
		case errs[i] != nil:
		case ours[k]:
			s.checked.Store(all[i].name, struct{}{})
		default:
			without = append(without, unknown{i, found[k].exists})
		}
	}
	return errs, without
}

// metasOf reads the metas of namespaces; nil for those without one. In a Cluster they may be on another Redis than the
// namespaces: when it hangs, there has to be time left for those.
func (s *Store) metasOf(ctx context.Context, all []namespace) ([]any, error) {
	if s.inCluster() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout/2, errTimeout)
		defer cancel()
	}
	names := make([]string, len(all))
	for i, ns := range all {
		names[i] = ns.name
	}
	metas, err := s.client.HMGet(ctx, s.keys.meta(), names...).Result()
	return metas, translate(err)
}

// agreedInCluster reports whether the last meta that could be read was that of this server, and the
// namespace may be on another Redis than the meta.
func (s *Store) agreedInCluster(ns namespace) bool {
	_, agreed := s.agreed.Load(ns.name)
	if agreed {
		s.agreed.Store(ns.name, s.rounds.Load())
	}
	return agreed
}

// keepAgreed is how many rounds of checking a namespace is remembered for that nobody asks for: an hour. Other servers
// remove namespaces, and new ones come.
const keepAgreed = int64(time.Hour / sampleEvery)

// checkAgain begins a round, in which namespaces are checked again.
func (s *Store) checkAgain() {
	s.checked.Clear()
	round := s.rounds.Add(1)
	s.agreed.Range(func(name, last any) bool {
		if round-last.(int64) > keepAgreed {
			s.agreed.CompareAndDelete(name, last)
		}
		return true
	})
}

// agree compares a namespace's meta with what this server would write.
func (s *Store) agree(ns namespace, meta any) error {
	text, _ := meta.(string)
	if text != ns.meta().String() {
		s.agreed.Delete(ns.name)
		return ns.mismatch(text)
	}
	if s.inCluster() {
		s.agreed.Store(ns.name, s.rounds.Load())
	}
	return nil
}

// enter makes sure of check's promise and begins a call.
func (s *Store) enter(ctx context.Context, ns namespace) (context.Context, context.CancelFunc, error) {
	if err := s.check(ctx, ns); err != nil {
		return nil, nil, err
	}
	return s.begin(ctx)
}
