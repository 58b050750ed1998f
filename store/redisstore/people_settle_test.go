package redisstore_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

const hiddenBit = "chat:hidden"

// TestSettling: users cannot become invisible until each server that wrote before knows of it.
func TestSettling(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	a, b := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
	now := nowOf(t, a)
	require.Equal(t, lastseen.State{At: now}, pingAt(t, b, "alice", now))
	window := longTimeout*5 + 11*time.Second
	before := lookup(t, a, "alice")[0]
	for _, s := range []store.Store{a, b, a} {
		settling := becomeInvisible(t, s)
		require.NotNil(t, settling)
		require.Greater(t, settling.Rest, window-10*time.Second)
		require.LessOrEqual(t, settling.Rest, window)
	}
	require.Equal(t, before, lookup(t, a, "alice")[0], "nothing was recorded")
	require.Zero(t, saying(t, a, "alice"))

	age := func(by time.Duration) {
		old := int64(nowOf(t, a).Add(-by))
		require.NoError(t, client.HSet(ctx, "presence::meta", hiddenBit, old).Err())
	}
	age(window - time.Minute)
	settling := becomeInvisible(t, b)
	require.NotNil(t, settling)
	require.LessOrEqual(t, settling.Rest, time.Minute+time.Second, "the stores' clocks differ by some milliseconds")
	age(window)
	b.ExpireAgreements()
	require.Nil(t, becomeInvisible(t, a))
	state := lookup(t, a, "alice")[0]
	require.True(t, state.Left)
	require.Equal(t, state, pingAt(t, b, "alice", nowOf(t, b)), "the other server knows")
}

// TestSettlingAfterAWrongClock: a bit from the future, or of another program, does not put it off for years.
func TestSettlingAfterAWrongClock(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	require.NoError(t, ping(s, "chat", "alice"))
	for _, value := range []string{strconv.FormatInt(int64(nowOf(t, s).Add(20*365*24*time.Hour)), 10), "x", ""} {
		require.NoError(t, client.HSet(ctx, "presence::meta", hiddenBit, value).Err())
		settling := becomeInvisible(t, s)
		require.NotNil(t, settling)
		require.LessOrEqual(t, settling.Rest, time.Hour)
		set, err := client.HGet(ctx, "presence::meta", hiddenBit).Int64()
		require.NoError(t, err)
		require.InDelta(t, int64(nowOf(t, s)), set, float64(time.Minute.Milliseconds()))
	}
}

// TestServerThatDoesNotKnow: what it writes before it checks the namespace again is what the wait is for.
func TestServerThatDoesNotKnow(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	a, b := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
	a.SettleAtOnce()
	require.NoError(t, ping(b, "chat", "alice"))
	state := say(t, a, "alice", invisible)
	require.True(t, state.Left)
	b.ExpireAgreements()
	now := nowOf(t, b)
	require.Equal(t, state, pingAt(t, b, "alice", now))
	require.Equal(t, state, record(t, b, onDevice("alice", "a", now)))
	require.Equal(t, state, lookup(t, b, "alice")[0])
}

// TestInvisibleFromTheStart: with the option, namespaces have the bit when they are made, and others get it when they
// are used.
func TestInvisibleFromTheStart(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	hasBit := func(namespace string) bool {
		return client.HExists(ctx, "presence::meta", namespace+":hidden").Val()
	}
	plain := newStore(t, redisstore.Options{URL: url})
	for _, namespace := range []string{"old", "configured"} {
		require.NoError(t, ping(plain, namespace, "alice"))
		require.False(t, hasBit(namespace))
	}
	s := newStore(t, redisstore.Options{URL: url, Invisible: true})
	require.NoError(t, s.Register(ctx, []string{"configured", "new"}))
	require.NoError(t, ping(s, "chat", "alice"))
	require.NoError(t, ping(s, "old", "alice"))
	for _, namespace := range []string{"configured", "new", "chat", "old"} {
		require.True(t, hasBit(namespace), namespace)
	}
	before := client.HGetAll(ctx, "presence::meta").Val()
	s.ExpireAgreements()
	require.NoError(t, s.Register(ctx, []string{"configured", "new"}))
	require.NoError(t, ping(s, "chat", "alice"))
	require.Equal(t, before, client.HGetAll(ctx, "presence::meta").Val(), "the time of a bit stays")
	lookup(t, s, "alice")
	_, err := s.Lookup(ctx, "unknown", []string{"alice"})
	require.NoError(t, err)
	require.False(t, hasBit("unknown"), "reads create nothing")
}

// TestInvisibleAtOnce: if all servers have the option, users need not wait, and each server knows at once.
func TestInvisibleAtOnce(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	for name, before := range map[string]func(plain, b *redisstore.Store){
		"new":        func(_, _ *redisstore.Store) {},
		"known":      func(_, b *redisstore.Store) { require.NoError(t, ping(b, "chat", "bob")) },
		"old":        func(plain, _ *redisstore.Store) { require.NoError(t, ping(plain, "chat", "bob")) },
		"configured": func(_, b *redisstore.Store) { require.NoError(t, b.Register(ctx, []string{"chat"})) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, client.FlushAll(ctx).Err())
			option := redisstore.Options{URL: url, Invisible: true}
			a, b := newStore(t, option), newStore(t, option)
			before(newStore(t, redisstore.Options{URL: url}), b)
			require.NoError(t, ping(b, "other", "bob")) // its own scripts have run
			var hide sync.Once
			b.Around("evalsha", func() { // after it has checked the namespace
				hide.Do(func() { require.Nil(t, becomeInvisible(t, a)) })
			}, func() {})
			now := nowOf(t, a).Add(time.Second)
			state := pingAt(t, b, "alice", now)
			require.True(t, state.Left)
			require.Equal(t, state, lookup(t, b, "alice")[0])
			require.Equal(t, state, record(t, b, onDevice("alice", "a", now)))
			require.True(t, client.HExists(ctx, "presence::meta", hiddenBit).Val(), "for servers without the option")
		})
	}
}

// TestLostBits: Redis loses what says that users are invisible. Servers that knew it, and servers that start, find out
// from the keys.
func TestLostBits(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	for name, lose := range map[string]func() error{
		"bits":     func() error { return client.HDel(ctx, "presence::meta", hiddenBit, "chat:details").Err() },
		"meta":     func() error { return client.Del(ctx, "presence::meta").Err() },
		"all":      func() error { return client.Del(ctx, "presence::meta", "presence::namespaces").Err() },
		"and data": func() error { return client.Del(ctx, "presence::meta", "presence::namespaces", chat).Err() },
	} {
		for _, fresh := range []bool{false, true} {
			if fresh && name == "bits" {
				continue // a bit is set long before a user is invisible: it is lost with the rest, or not at all
			}
			require.NoError(t, client.FlushAll(ctx).Err())
			s := newStore(t, redisstore.Options{URL: url})
			s.SettleAtOnce()
			say(t, s, "bob", inMeeting)
			say(t, s, "alice", invisible)
			before := lookup(t, s, "alice")[0]
			require.True(t, before.Left)
			require.NoError(t, lose(), name)
			server := s
			if server.ExpireAgreements(); fresh {
				server = newStore(t, redisstore.Options{URL: url})
			}
			if name == "and data" {
				before = lastseen.State{}
			}
			require.Equal(t, before, pingAt(t, server, "alice", nowOf(t, s)), "%s, %t", name, fresh)
			require.Equal(t, inMeeting, described(t, server, "bob").Said, "%s, %t", name, fresh)
			require.True(t, client.HExists(ctx, "presence::meta", hiddenBit).Val(), "%s, %t", name, fresh)
			require.Equal(t, invisible, saying(t, server, "alice"))
		}
	}
}

// TestDeletedWhileUsersBecomeInvisible: another server deletes the namespace, and so the bit, between the check and the
// write.
func TestDeletedWhileUsersBecomeInvisible(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	a, b := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
	a.SettleAtOnce()
	require.NoError(t, ping(a, "chat", "alice"))
	require.Zero(t, say(t, a, "bob", lastseen.Said{}))
	var remove sync.Once // the store calls scripts by itself, too: whichever is first waits, and so does the other
	deleted := false
	a.Around("evalsha", func() {
		remove.Do(func() {
			require.NoError(t, b.DeleteNamespace(ctx, "chat"))
			deleted = true
		})
	}, func() {})
	state := say(t, a, "alice", invisible)
	require.True(t, deleted)
	require.True(t, client.HExists(ctx, "presence::meta", hiddenBit).Val())
	require.Equal(t, state, pingAt(t, b, "alice", nowOf(t, b)))
}
