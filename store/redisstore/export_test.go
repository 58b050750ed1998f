package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// ExpireAgreements makes the store check each namespace again, as it does every sampleEvery.
func (s *Store) ExpireAgreements() { s.agreements.nextRound() }

// ConfirmAll makes the store believe that it has just checked all namespaces that it knows.
func (s *Store) ConfirmAll() {
	s.agreements.last.Range(func(name, _ any) bool {
		s.agreements.confirm(name.(string))
		return true
	})
}

// ConfirmNames repairs the list of namespaces, as the store does once a minute.
func (s *Store) ConfirmNames(ctx context.Context) { s.confirmNames(ctx) }

// Monitor checks after the servers, as it does every sampleEvery.
func (s *Store) Monitor(ctx context.Context) { s.monitor(ctx) }

// TryWriting checks that each server takes writes, as Monitor does.
func (s *Store) TryWriting(ctx context.Context) []error { return s.forEachPrimary(ctx, s.writeNothing) }

// ShardOf returns the key of the shard that has a user.
func ShardOf(s *Store, namespace, user string) string { return s.keys.namespace(namespace).of(user) }

// CallKeysOf returns the keys of the calls of a namespace.
func CallKeysOf(s *Store, namespace string) []string { return s.keys.namespace(namespace).callKeys() }

// CheckSignalsEvery sets the time between two signals of a listener to itself, before Listen.
func (s *Store) CheckSignalsEvery(d time.Duration) { s.signals.checkEvery = d }

// Around calls f before, and g after, each call of a Redis command by this store.
func (s *Store) Around(command string, f, g func()) { s.client.AddHook(around{command, f, g}) }

type around struct {
	command string
	f, g    func()
}

func (around) DialHook(next redis.DialHook) redis.DialHook { return next }

func (around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != a.command {
			return next(ctx, cmd)
		}
		a.f()
		defer a.g()
		return next(ctx, cmd)
	}
}

// AddHook adds a hook to the client.
func (s *Store) AddHook(hook redis.Hook) { s.client.AddHook(hook) }
