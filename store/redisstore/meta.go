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
	exists  bool    // it has members, although it has no meta
	bit     feedBit // whether it may have a feed
	err     error   // why this server cannot serve it
}

// verify checks, once in each round, that namespaces are stored as this server stores them, and fills in what it finds.
// Sets without a meta and shared sets may hold anything, so their scores are checked, too.
func (s *Store) verify(ctx context.Context, all []*candidate) {
	var unsure []*candidate
	for _, c := range all {
		if c.hasMeta = s.agreements.current(c.name); c.hasMeta {
			c.bit = s.agreements.bit(c.name)
		} else {
			unsure = append(unsure, c)
		}
	}
	if len(unsure) == 0 {
		return
	}
	s.checkMetas(ctx, unsure)
	s.checkScores(ctx, slices.DeleteFunc(slices.Clone(unsure), func(c *candidate) bool {
		return c.err != nil || c.hasMeta && !c.shared
	}))
	for _, c := range unsure {
		if c.err == nil && c.hasMeta {
			s.agreements.confirm(c.name, c.bit)
		}
	}
}

// checkMetas compares metas with the settings. While those of a Cluster cannot be read, earlier agreements hold.
func (s *Store) checkMetas(ctx context.Context, all []*candidate) {
	metas, bits, err := s.readMetas(ctx, all)
	mayHold := errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil && s.inCluster()
	for i, c := range all {
		switch {
		case err == nil:
			c.bit = bits[i]
			s.checkMeta(c, metas[i])
		case mayHold && s.agreements.known(c.name):
			// Naming the keys of a feed that does not exist does no harm; not naming those of one that does would.
			c.hasMeta, c.bit = true, feedBit{set: c.hasFeeds()}
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

// readMetas reads the metas of namespaces, nil for those without one, and the bits of their feeds. In a Cluster they
// may be on a different Redis from the namespaces: when it hangs, there has to be time left for those.
func (s *Store) readMetas(ctx context.Context, all []*candidate) (metas []any, bits []feedBit, err error) {
	if s.inCluster() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout/2)
		defer cancel()
	}
	fields := make([]string, len(all), 2*len(all))
	for i, c := range all {
		fields[i] = c.name
		fields = append(fields, bitField(c.name))
	}
	values, err := s.client.HMGet(ctx, s.keys.meta(), fields...).Result()
	if err != nil {
		return nil, nil, translate(err)
	}
	bits = make([]feedBit, len(all))
	for i, value := range values[len(all):] {
		text, found := value.(string)
		bits[i] = feedBit{set: found && all[i].hasFeeds(), value: text}
	}
	return values[:len(all)], bits, nil
}
