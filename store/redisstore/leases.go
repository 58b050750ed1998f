package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// Lease implements [store.Store].
func (s *Store) Lease(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	return s.runBool(ctx, scripts.Lease, s.keys.lease(name), s.holder, max(1, ttl.Milliseconds()))
}

// SetNote implements [store.Store].
func (s *Store) SetNote(ctx context.Context, name, key, old string, n store.Note) (bool, error) {
	return s.runBool(ctx, scripts.Note, s.keys.notes(name), key, old, n.Version, n.Text, store.NotesKept.Milliseconds())
}

// runBool runs a script that reports whether it did something.
func (s *Store) runBool(ctx context.Context, script *redis.Script, key string, args ...any) (bool, error) {
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return false, err
	}
	defer cancel()
	cmd, err := s.client.Run(ctx, script, key, args...)
	if err != nil {
		return false, err
	}
	return cmd.Bool()
}

// Note implements [store.Store].
func (s *Store) Note(ctx context.Context, name, key string) (n store.Note, err error) {
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return n, err
	}
	defer cancel()
	cmd, err := s.client.Run(ctx, scripts.Note, s.keys.notes(name), key)
	if err != nil {
		return n, err
	}
	reply, err := redisclient.Slice(cmd.Val(), -1)
	if err != nil || len(reply) == 0 {
		return n, err
	}
	if len(reply) != 3 {
		return n, fmt.Errorf("unexpected script reply of %d elements instead of 3", len(reply))
	}
	version, ok := reply[0].(string)
	text, isText := reply[1].(string)
	if !ok || !isText {
		return n, fmt.Errorf("unexpected script reply: %T, %T is not a note", reply[0], reply[1])
	}
	return store.Note{Version: version, Text: []byte(text), Restored: reply[2] == int64(1)}, nil
}

// Notes implements [store.Store].
func (s *Store) Notes(ctx context.Context, name string) (keys []string, err error) {
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	keys, err = s.client.HKeys(ctx, s.keys.notes(name)).Result()
	return keys, redisclient.Translate(err)
}
