package redisstore

import (
	"fmt"
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

// meta returns how this server stores the namespace.
func (n namespace) meta() meta {
	m := meta{shards: n.shards, unit: n.unit, hash: hashVersion}
	if !n.own {
		m.key = n.key
	}
	return m
}

// String returns the text that Redis holds.
func (m meta) String() string {
	text := fmt.Sprintf("shards=%d unit=%s hash=%s", m.shards, m.unit, m.hash)
	if m.key != "" {
		text += " key=" + m.key
	}
	return text
}

// parseMeta reads what String writes, also with values that this version does not know.
func parseMeta(text string) (m meta, ok bool) {
	text, key, hasKey := strings.Cut(text, " key=")
	m.key = key
	_, err := fmt.Sscanf(text, "shards=%d unit=%s hash=%s", &m.shards, &m.unit, &m.hash)
	return m, err == nil && hasKey == (key != "")
}

// mismatch returns the error of a namespace that is stored as its meta in Redis says, and not as this server's.
func (n namespace) mismatch(stored string) error {
	ours := n.meta()
	theirs, ok := parseMeta(stored)
	var settings []string
	for _, field := range []struct {
		setting string
		differs bool
	}{
		{"redis-shards", theirs.shards != ours.shards},
		{"redis-score-unit", theirs.unit != ours.unit},
		{"redis-key", theirs.key != ours.key},
	} {
		if ok && field.differs {
			settings = append(settings, field.setting)
		}
	}
	return &store.MismatchError{
		Namespace: n.name, Settings: settings,
		Detail: fmt.Sprintf("is stored with %s, but this server is set to %s", stored, ours),
	}
}

// storedAs returns where a namespace is stored according to its meta in Redis, which a server with other settings may
// have written; no keys if the meta has values that this version does not know.
func (s *Store) storedAs(name string, text any) stored {
	ns := s.keys.namespace(name)
	stringified, ok := text.(string)
	if !ok || stringified == ns.meta().String() {
		return stored{ns.all(), ns.encoding} // without meta it is being registered just now
	}
	m, ok := parseMeta(stringified)
	layout := Layout{Key: m.key, Unit: m.unit, Shards: m.shards}
	if !ok || checkLayout(layout) != nil {
		return stored{}
	}
	theirs := keyspace{prefix: s.keys.prefix, shards: m.shards, layouts: map[string]Layout{name: layout}}
	ns = theirs.namespace(name)
	return stored{ns.all(), ns.encoding}
}
