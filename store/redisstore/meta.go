package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lastseen/lastseen/store"
)

// meta describes how a namespace is stored. It is written once, and each server compares it with its settings.
type meta struct {
	shards int
	unit   Unit
	hash   string // version of the function that assigns users to shards
	key    string // "" if it is the one that the namespace's name gives it
}

func (n namespace) meta() meta {
	m := meta{shards: n.shards, unit: n.unit, hash: hashVersion}
	if !n.own {
		m.key = n.key
	}
	return m
}

// String returns what Redis holds.
func (m meta) String() string {
	text := fmt.Sprintf("shards=%d unit=%s hash=%s", m.shards, m.unit, m.hash)
	if m.key != "" {
		text += " key=" + m.key
	}
	return text
}

// parseMeta is the reverse of String. The values may be unknown to this version.
func parseMeta(text string) (m meta, ok bool) {
	text, key, hasKey := strings.Cut(text, " key=")
	m.key = key
	_, err := fmt.Sscanf(text, "shards=%d unit=%s hash=%s", &m.shards, &m.unit, &m.hash)
	return m, err == nil && hasKey == (key != "")
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
	if !ok || checkLayout(layout) != nil {
		return namespace{}
	}
	return keyspace{prefix: s.keys.prefix, layouts: map[string]Layout{name: layout}}.namespace(name)
}

// candidate is a namespace that is being checked.
type candidate struct {
	namespace
	hasMeta bool
	exists  bool  // it has members, although it has no meta
	bits    bits  // whether it may have a feed, devices, details, and hidden times
	known   bits  // those of the check before
	err     error // why this server cannot serve it
}

// verify checks, once in each round, that namespaces are stored as this server stores them, and fills in what it finds.
// Sets without a meta and shared sets may hold anything, so their scores are checked, too.
func (s *Store) verify(ctx context.Context, all []*candidate) {
	var unsure []*candidate
	for _, c := range all {
		if c.hasMeta = s.agreements.current(c.name); c.hasMeta {
			c.bits = s.agreements.bits(c.name)
		} else {
			unsure = append(unsure, c)
		}
	}
	if len(unsure) == 0 {
		return
	}
	s.checkMetas(ctx, unsure)
	s.findLostBits(ctx, lostBits(unsure))
	s.assumeInvisible(ctx, unsure)
	s.checkScores(ctx, slices.DeleteFunc(slices.Clone(unsure), func(c *candidate) bool {
		return c.err != nil || c.hasMeta && !c.shared
	}))
	for _, c := range unsure {
		if c.err == nil && c.hasMeta {
			s.agreements.confirm(c.name, c.bits)
		}
	}
}

// checkMetas compares metas with the settings. While those of a Cluster cannot be read, earlier agreements hold.
func (s *Store) checkMetas(ctx context.Context, all []*candidate) {
	metas, found, err := s.readMetas(ctx, all)
	mayHold := errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil && s.inCluster()
	for i, c := range all {
		switch {
		case err == nil:
			c.bits = found[i]
			c.known = s.agreements.bits(c.name)
			s.checkMeta(c, metas[i])
		case mayHold && s.agreements.known(c.name):
			// Naming companions that do not exist does no harm; not naming those that do would.
			assumed := bit{set: c.hasCompanions()}
			c.hasMeta, c.bits = true, bits{feed: assumed, devices: assumed, details: assumed, hidden: assumed}
		default:
			c.err = err
		}
	}
}

func (s *Store) checkMeta(c *candidate, meta any) {
	text, found := meta.(string)
	c.hasMeta = found
	if found && text == c.meta().String() {
		return
	}
	s.agreements.forget(c.name)
	if found {
		c.err = c.mismatch(text)
	}
}

// readMetas reads the metas of namespaces, nil for those without one, and their bits. In a Cluster they may be on a
// different Redis from the namespaces: when it hangs, there has to be time left for those.
func (s *Store) readMetas(ctx context.Context, all []*candidate) (metas []any, found []bits, err error) {
	if s.inCluster() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout/2)
		defer cancel()
	}
	var fields []string
	for _, c := range all {
		fields = append(append(fields, c.name), bitFields(c.name)...)
	}
	values, err := s.client.HMGet(ctx, s.keys.meta(), fields...).Result()
	if err != nil {
		return nil, nil, translate(err)
	}
	metas, found = make([]any, len(all)), make([]bits, len(all))
	for i, c := range all {
		n := len(values) / len(all)
		metas[i], found[i] = values[n*i], c.readBits(values[n*i+1:n*(i+1)])
	}
	return metas, found, nil
}
