package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// ExpireMetaCache makes the store check each namespace again, as it does every sampleEvery.
func (s *Store) ExpireMetaCache() { s.metaCache.nextRound() }

// ConfirmAll makes the store believe that it has just checked all namespaces that it knows.
func (s *Store) ConfirmAll() {
	s.metaCache.last.Range(func(name, _ any) bool {
		s.metaCache.confirm(name.(string))
		return true
	})
}

// ConfirmNames repairs the list of namespaces, as the store does once a minute.
func (s *Store) ConfirmNames(ctx context.Context) { s.confirmNames(ctx) }

// Monitor checks after the servers, as it does every sampleEvery.
func (s *Store) Monitor(ctx context.Context) { s.monitor(ctx) }

// ShardOf returns the key of the shard that has a user.
func ShardOf(s *Store, namespace, user string) string { return s.keys.namespace(namespace).of(user) }

// FirstUsers returns a user in each shard of a namespace.
func (s *Store) FirstUsers(name string) (users []string) {
	ns := s.keys.namespace(name)
	found := map[string]bool{}
	for i := 0; len(users) < ns.shards; i++ {
		if user := fmt.Sprint("first", i); !found[ns.of(user)] {
			found[ns.of(user)] = true
			users = append(users, user)
		}
	}
	return users
}

// outboxOf returns the key of the users who have to be copied.
func (s *Store) outboxOf(name string) string {
	return s.keys.namespace(name).callKey("calloutbox")
}

// SetInCall records until when a user is in a call.
func (s *Store) SetInCall(ctx context.Context, name, user string, until lastseen.Instant) error {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoCalls)
	if err != nil {
		return err
	}
	defer cancel()
	return s.setInCalls(ctx, c, []inCall{{user: user, until: until}})
}

// NoteInCalls notes that users have to be copied, as a step does.
func (s *Store) NoteInCalls(ctx context.Context, name string, users ...string) error {
	members := make([]redis.Z, len(users))
	for i, user := range users {
		members[i].Member = user
	}
	return s.client.ZAdd(ctx, s.outboxOf(name), members...).Err()
}

// NotedInCalls returns the users who have to be copied.
func (s *Store) NotedInCalls(ctx context.Context, name string) ([]string, error) {
	return s.client.ZRangeByScore(ctx, s.outboxOf(name), &redis.ZRangeBy{Min: "-inf", Max: "(inf"}).Result()
}

// AroundCommands is a hook of tests.
type AroundCommands = redistest.AroundCommands

// Around calls f before, and g after, each call of a Redis command by this store.
func (s *Store) Around(command string, f, g func()) { s.AddHook(redistest.Around(command, f, g)) }

// AddHook adds a hook to the client.
func (s *Store) AddHook(hook redis.Hook) { s.client.AddHook(hook) }
