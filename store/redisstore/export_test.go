package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// ExpireAgreements makes the store check each namespace again, as it does every sampleEvery.
func (s *Store) ExpireAgreements() { s.agreements.nextRound() }

// SettleAtOnce has users become invisible without waiting for other servers.
func (s *Store) SettleAtOnce() { s.hiddenSettles = 0 }

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

// MarkedLists stands for the lists of a namespace in the result of TakeMarks.
const MarkedLists = listMark

// WatchMarks forgets what this process wrote, and has these users of a namespace not share a place of marks with each
// other.
func (s *Store) WatchMarks(namespace string, users ...string) {
	for {
		m := newMarks()
		places := map[any]bool{m.place(namespace, listMark): true, m.place(namespace, wholeMark): true}
		for _, user := range users {
			places[m.place(namespace, user)] = true
		}
		if len(places) == len(users)+2 {
			s.replicas.marks = m
			return
		}
	}
}

// TakeMarks returns which of these users are marked, and whether lists are, and deletes the marks.
func (s *Store) TakeMarks(namespace string, users ...string) (marked []string) {
	for _, user := range append(users, listMark, wholeMark) {
		if s.replicas.marks.place(namespace, user).Swap(0) != 0 {
			marked = append(marked, user)
		}
	}
	return marked
}

// GroupOf returns the place of the group of a user whose details change with those of others.
func GroupOf(user string) int { return groupOf(user) }

// AddHook adds a hook to the client.
func (s *Store) AddHook(hook redis.Hook) { s.client.AddHook(hook) }
