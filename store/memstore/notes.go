package memstore

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastseen/lastseen/store"
)

// notes are those of each name, by key. They are lost when the process ends, as feeds are.
type notes struct {
	mu sync.Mutex
	of map[string]map[string]store.Note
}

// Lease implements [store.Store]. It is always granted: no other process has the data.
func (s *Store) Lease(ctx context.Context, _ string, _ time.Duration) (bool, error) {
	err := s.Ready(ctx)
	return err == nil, err
}

// Note implements [store.Store].
func (s *Store) Note(ctx context.Context, name, key string) (n store.Note, err error) {
	err = s.read(ctx, func(*index) {
		s.notes.mu.Lock()
		defer s.notes.mu.Unlock()
		n = s.notes.of[name][key]
		n.Text = bytes.Clone(n.Text)
	})
	return n, err
}

// Notes implements [store.Store].
func (s *Store) Notes(ctx context.Context, name string) (keys []string, err error) {
	err = s.read(ctx, func(*index) {
		s.notes.mu.Lock()
		defer s.notes.mu.Unlock()
		keys = slices.Collect(maps.Keys(s.notes.of[name]))
	})
	return keys, err
}

// SetNote implements [store.Store].
func (s *Store) SetNote(ctx context.Context, name, key, old string, n store.Note) (set bool, err error) {
	err = s.read(ctx, func(*index) {
		s.notes.mu.Lock()
		defer s.notes.mu.Unlock()
		if set = s.notes.of[name][key].Version == old; set {
			s.notes.set(name, strings.Clone(key), store.Note{Version: n.Version, Text: bytes.Clone(n.Text)})
		}
	})
	return set, err
}

func (n *notes) set(name, key string, note store.Note) {
	if note.Version == "" {
		delete(n.of[name], key)
		return
	}
	if n.of[name] == nil {
		n.of[name] = map[string]store.Note{}
	}
	n.of[name][key] = note
}
