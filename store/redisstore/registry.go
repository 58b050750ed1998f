package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// meta describes how a namespace is stored: shard count, score unit, version of the shard hash.
func (s *Store) meta() string {
	return fmt.Sprintf("shards=%d unit=ms hash=%s", s.keys.shards, hashVersion)
}

// admit makes sure, once, that a namespace is registered and stored as this server stores it, before
// it is written to.
func (s *Store) admit(ctx context.Context, namespace string) error {
	if err := s.check(ctx, namespace); err != nil {
		return err
	}
	if _, done := s.checked.Load(namespace); done {
		return nil
	}
	return s.register(ctx, namespace)
}

// register writes the namespace's name and then its meta, unless it has one: whoever finds a meta may
// rely on the name.
func (s *Store) register(ctx context.Context, namespace string) error {
	s.checked.Delete(namespace)
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := s.client.ZAddNX(bounded, s.keys.registry(), redis.Z{Member: namespace}).Err(); err != nil {
		return translate(err)
	}
	if err := s.client.HSetNX(bounded, s.keys.meta(), namespace, s.meta()).Err(); err != nil {
		return translate(err)
	}
	return s.check(ctx, namespace)
}

// Register implements [store.Store]. The error names all namespaces that are stored otherwise than
// this server stores them.
func (s *Store) Register(ctx context.Context, namespaces []string) error {
	var mismatched error
	for _, namespace := range namespaces {
		switch err := s.register(ctx, namespace); {
		case errors.Is(err, store.ErrMismatch):
			mismatched = errors.Join(mismatched, err)
		case err != nil:
			return err
		}
	}
	return mismatched
}

// check makes sure, once, that a namespace is stored as this server stores it. One without meta has
// never been pinged: there is nothing to agree on yet.
func (s *Store) check(ctx context.Context, namespace string) error {
	if _, done := s.checked.Load(namespace); done {
		return nil
	}
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	stored, err := s.client.HGet(ctx, s.keys.meta(), namespace).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err != nil:
		return translate(err)
	case stored != s.meta():
		return fmt.Errorf("%w: namespace %q is stored with %s, this server is set to %s",
			store.ErrMismatch, namespace, stored, s.meta())
	}
	s.checked.Store(namespace, struct{}{})
	return nil
}

// enter makes sure of check's promise and begins a call.
func (s *Store) enter(ctx context.Context, namespace string) (context.Context, context.CancelFunc, error) {
	if err := s.check(ctx, namespace); err != nil {
		return nil, nil, err
	}
	return s.begin(ctx)
}

// storedKeys returns the keys that a namespace was spread over by whoever wrote its meta, which may be
// a server with another number of shards; none if the meta says what this version does not know.
func (s *Store) storedKeys(namespace string, meta any) []string {
	stored, ok := meta.(string)
	if !ok || stored == s.meta() {
		return s.keys.all(namespace) // without meta it is being registered just now
	}
	theirs := keyspace{prefix: s.keys.prefix}
	_, err := fmt.Sscanf(stored, "shards=%d unit=ms ", &theirs.shards)
	if err != nil || theirs.shards < MinShards || theirs.shards > MaxShards {
		return nil
	}
	return theirs.all(namespace)
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

// infos describes namespaces. In a key of another type nobody is stored.
func (s *Store) infos(ctx context.Context, names []string, metas []any) ([]store.NamespaceInfo, error) {
	keys := make([][]string, len(names))
	for i, name := range names {
		keys[i] = s.storedKeys(name, metas[i])
	}
	newest, err := s.newest(ctx, keys)
	if err != nil {
		return nil, err
	}
	infos := make([]store.NamespaceInfo, len(names))
	for i, name := range names {
		if err := newest[i].err; err != nil && !errors.Is(err, store.ErrWrongType) {
			return nil, err
		}
		infos[i] = store.NamespaceInfo{Name: name, Newest: newest[i].at}
	}
	return infos, nil
}

// DeleteNamespace implements [store.Store]. The name goes before the data: a ping in between finds
// its key gone afterwards, or creates it anew and registers it again.
func (s *Store) DeleteNamespace(ctx context.Context, namespace string) error {
	ctx, cancel, err := s.enter(ctx, namespace)
	if err != nil {
		return err
	}
	defer cancel()
	s.checked.Delete(namespace)
	if err := s.ours(ctx, namespace); err != nil {
		return err
	}
	pipe := s.client.Pipeline()
	pipe.HDel(ctx, s.keys.meta(), namespace)
	pipe.ZRem(ctx, s.keys.registry(), namespace)
	for _, key := range s.keys.all(namespace) {
		pipe.Unlink(ctx, key)
	}
	_, err = pipe.Exec(ctx)
	return translate(err)
}

// ours returns an error if a key of the namespace is no sorted set, and so somebody else's: UNLINK
// would not mind.
func (s *Store) ours(ctx context.Context, namespace string) error {
	pipe := s.client.Pipeline()
	for _, key := range s.keys.all(namespace) {
		pipe.ZCard(ctx, key)
	}
	_, err := pipe.Exec(ctx)
	return translate(err)
}
