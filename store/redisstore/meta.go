package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// meta describes how a namespace is stored. It is written once, and each server compares it with its settings.
type meta struct {
	shards int
	unit   Unit
	hash   string // version of the function that assigns users to shards
	layout int    // version of the side keys; 0 if there can be none, or for the one before their hashes
	key    string // "" if it is the one that the namespace's name gives it
}

func (n namespace) meta() meta {
	m := meta{shards: n.shards, unit: n.unit, hash: hashVersion}
	if !n.own {
		m.key = n.key
	}
	if n.hasSideKeys() {
		m.layout = layoutVersion
	}
	return m
}

// layoutVersion is that of scripts that compare the hash of side keys. Servers of versions before refuse a namespace
// with it, since they would not.
const layoutVersion = 2

// String returns what Redis holds.
func (m meta) String() string {
	text := fmt.Sprintf("shards=%d unit=%s hash=%s", m.shards, m.unit, m.hash)
	if m.layout != 0 {
		text += fmt.Sprintf(" layout=%d", m.layout)
	}
	if m.key != "" {
		text += " key=" + m.key
	}
	return text
}

// parseMeta is the reverse of String. The values may be unknown to this version.
func parseMeta(text string) (m meta, ok bool) {
	text, key, hasKey := strings.Cut(text, " key=")
	m.key = key
	text, layout, hasLayout := strings.Cut(text, " layout=")
	if m.layout, ok = 0, !hasLayout; hasLayout {
		version, err := strconv.Atoi(layout)
		m.layout, ok = version, err == nil
	}
	_, err := fmt.Sscanf(text, "shards=%d unit=%s hash=%s", &m.shards, &m.unit, &m.hash)
	return m, ok && err == nil && hasKey == (key != "")
}

// mismatch returns the error of a namespace whose meta in Redis differs from this server's.
func (n namespace) mismatch(stored string) error {
	ours := n.meta()
	theirs, ok := parseMeta(stored)
	var settings []string
	if ok && theirs.shards != ours.shards {
		settings = append(settings, "redis-shards")
	}
	if ok && theirs.unit != ours.unit {
		settings = append(settings, "redis-score-unit")
	}
	if ok && theirs.key != ours.key {
		settings = append(settings, "redis-key")
	}
	return &store.MismatchError{
		Namespace: n.name, Settings: settings,
		Detail: fmt.Sprintf("is stored with %s, but this server is set to %s", stored, ours),
	}
}

// storedAs returns how a namespace is stored according to its meta in Redis, which a server with other settings may
// have written. The result has no keys if this version does not know the meta's values.
func (s *Store) storedAs(name string, meta any) namespace {
	ours := s.keys.namespace(name)
	text, ok := meta.(string)
	if !ok || text == ours.meta().String() { // without a meta it is just being registered
		return ours
	}
	m, ok := parseMeta(text)
	layout := Layout{Key: m.key, Unit: m.unit, Shards: m.shards}
	if !ok || m.layout > layoutVersion || checkLayout(layout) != nil {
		return namespace{}
	}
	return keyspace{prefix: s.keys.prefix, layouts: map[string]Layout{name: layout}}.namespace(name)
}

// resolvedNamespace is a namespace that is being checked.
type resolvedNamespace struct {
	namespace
	hasMeta  bool
	outdated bool  // the meta is that of an earlier layout
	exists   bool  // it has members, although it has no meta
	err      error // why this server cannot serve it
}

// open begins an operation on one namespace, after checking that this server can serve it.
func (s *Store) open(ctx context.Context, name string) (context.Context, context.CancelFunc, namespace, error) {
	ctx, cancel, c, err := s.openWith(ctx, 2*s.client.Timeout, name, s.verify)
	return ctx, cancel, c.namespace, err
}

// openWith is open with another time and check, whose errors are in the namespaces that it is given.
func (s *Store) openWith(
	ctx context.Context, timeout time.Duration, name string, check func(context.Context, []*resolvedNamespace),
) (context.Context, context.CancelFunc, *resolvedNamespace, error) {
	ctx, cancel, all := s.openEach(ctx, timeout, 1, func(int) string { return name }, check)
	if all[0].err != nil {
		cancel()
	}
	return ctx, cancel, all[0], all[0].err
}

// openEach is openWith for n namespaces, each of which has its error.
func (s *Store) openEach(
	ctx context.Context, timeout time.Duration, n int, name func(int) string,
	check func(context.Context, []*resolvedNamespace),
) (context.Context, context.CancelFunc, []*resolvedNamespace) {
	all := make([]*resolvedNamespace, n)
	for i := range all {
		all[i] = &resolvedNamespace{namespace: s.keys.namespace(name(i))}
	}
	begun, cancel, err := s.client.Begin(ctx, timeout)
	if err != nil {
		for _, c := range all {
			c.err = err
		}
		return ctx, func() {}, all
	}
	check(begun, all)
	return begun, cancel, all
}

// openSides is open for what needs side keys. In a namespace that can have none, the error is missing.
func (s *Store) openSides(
	ctx context.Context, name string, missing error,
) (context.Context, context.CancelFunc, *resolvedNamespace, error) {
	ctx, cancel, c, err := s.openWith(ctx, 2*s.client.Timeout, name, s.verify)
	if err == nil && !c.hasSideKeys() {
		cancel()
		err = missing
	}
	return ctx, cancel, c, err
}

// verify checks, once in each round, that namespaces are stored as this server stores them, and fills in what it finds.
// Sets without a meta and shared sets may hold anything, so their scores are checked, too.
func (s *Store) verify(ctx context.Context, all []*resolvedNamespace) {
	var unsure []*resolvedNamespace
	for _, c := range all {
		if c.hasMeta = s.metaCache.current(c.name); !c.hasMeta {
			unsure = append(unsure, c)
		}
	}
	if len(unsure) == 0 {
		return
	}
	s.checkMetas(ctx, unsure)
	s.upgradeMetas(ctx, unsure)
	s.checkScores(ctx, slices.DeleteFunc(slices.Clone(unsure), func(c *resolvedNamespace) bool {
		return c.err != nil || c.hasMeta && !c.shared
	}))
	for _, c := range unsure {
		if c.err == nil && c.hasMeta {
			s.metaCache.confirm(c.name)
		}
	}
}

// checkMetas compares metas with the settings. While those of a Cluster cannot be read, earlier checks count.
func (s *Store) checkMetas(ctx context.Context, all []*resolvedNamespace) {
	metas, err := s.readMetas(ctx, all)
	mayHold := errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil && s.client.InCluster()
	for i, c := range all {
		_, known := s.metaCache.load(c.name)
		switch {
		case err == nil:
			s.checkMeta(c, metas[i])
		case mayHold && known:
			c.hasMeta = true
		default:
			c.err = err
		}
	}
}

func (s *Store) checkMeta(c *resolvedNamespace, meta any) {
	text, found := meta.(string)
	before := c.meta()
	before.layout = 0
	switch c.hasMeta = found; {
	case found && text == c.meta().String():
		return
	case found && text == before.String():
		c.outdated = true
		return
	}
	s.metaCache.forget(c.name)
	if found {
		c.err = c.mismatch(text)
	}
}

// upgradeMetas writes the metas of namespaces that an earlier version wrote, and deletes the fields in which it kept
// which side keys scripts name: these are found by looking.
func (s *Store) upgradeMetas(ctx context.Context, all []*resolvedNamespace) {
	for _, c := range all {
		if !c.outdated || c.err != nil {
			continue
		}
		pipe := s.client.Pipeline()
		pipe.HSet(ctx, s.keys.meta(), c.name, c.meta().String())
		pipe.HDel(ctx, s.keys.meta(), c.name+":changes", c.name+":devices", c.name+":details", c.name+":hidden")
		_, err := pipe.Exec(ctx)
		c.err = redisclient.Translate(err)
	}
}

// readMetas reads the metas of namespaces, nil for those without one. In a Cluster they may be on a different Redis
// from the namespaces: when it hangs, there has to be time left for those.
func (s *Store) readMetas(ctx context.Context, all []*resolvedNamespace) (metas []any, err error) {
	if s.client.InCluster() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.client.Timeout/2)
		defer cancel()
	}
	fields := make([]string, len(all))
	for i, c := range all {
		fields[i] = c.name
	}
	metas, err = s.client.HMGet(ctx, s.keys.meta(), fields...).Result()
	return metas, redisclient.Translate(err)
}

// metaCache remembers the namespaces that were stored as this server stores them when they were last checked, each by
// the number of the round in which that was. The zero value is ready for use.
type metaCache struct {
	round atomic.Int64
	last  sync.Map // name → metaEntry
}

type metaEntry struct {
	round int64
	calls bool // the namespace is in the list of those with calls
}

func (a *metaCache) load(name string) (entry metaEntry, found bool) {
	last, found := a.last.Load(name)
	if found {
		entry = last.(metaEntry)
	}
	return entry, found
}

// keepUnused is the number of rounds for which an unused namespace is remembered: an hour. Other servers remove
// namespaces, and new ones come.
const keepUnused = int64(time.Hour / sampleEvery)

// expire returns a function that begins a round, except the first time.
func (a *metaCache) expire() func(context.Context) {
	begun := false
	return func(context.Context) {
		if begun {
			a.nextRound()
		}
		begun = true
	}
}

// nextRound begins a round, in which namespaces are checked again.
func (a *metaCache) nextRound() {
	round := a.round.Add(1)
	a.last.Range(func(name, last any) bool {
		if round-last.(metaEntry).round > keepUnused {
			a.last.CompareAndDelete(name, last)
		}
		return true
	})
}

// current reports whether a namespace was checked in this round.
func (a *metaCache) current(name string) bool {
	last, found := a.load(name)
	return found && last.round == a.round.Load()
}

// recent returns the names of the namespaces that were checked in the last minute.
func (a *metaCache) recent() (names []string) {
	oldest := a.round.Load() - int64(time.Minute/sampleEvery)
	a.last.Range(func(name, last any) bool {
		if last.(metaEntry).round >= oldest {
			names = append(names, name.(string))
		}
		return true
	})
	return names
}

func (a *metaCache) confirm(name string) {
	a.last.Store(name, metaEntry{round: a.round.Load()})
}

// setCalls notes whether a namespace is in the list of those with calls. That holds until its next check.
func (a *metaCache) setCalls(name string, listed bool) {
	if last, found := a.load(name); found {
		a.last.CompareAndSwap(name, last, metaEntry{last.round, listed})
	}
}

// recheck has a namespace checked again before its next use.
func (a *metaCache) recheck(name string) {
	if last, found := a.load(name); found && last.round == a.round.Load() {
		a.last.CompareAndSwap(name, last, metaEntry{round: last.round - 1})
	}
}

func (a *metaCache) forget(name string) { a.last.Delete(name) }
