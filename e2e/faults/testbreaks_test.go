//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// This file has what breaks systems, for the driver and for [TestChaos]. Each returns what repairs it.

// spoil is a way to spoil connections: see [proxy.spoil].
type spoil struct{ name, toxic, attributes string }

func spoils() []spoil {
	return []spoil{
		{"slow", "latency", `{"latency":1000,"jitter":500}`},
		{"silent", "timeout", `{"timeout":0}`},
		{"reset", "reset_peer", `{"timeout":0}`},
		{"cut off", "limit_data", `{"bytes":1000}`},
		{"1 KB per second", "bandwidth", `{"rate":1}`},
	}
}

// spoil spoils what is sent through proxies in one direction, or in both.
func (x *system) spoil(proxies []proxy, how spoil, streams ...string) (repair func()) {
	for _, p := range proxies {
		for _, stream := range streams {
			p.spoil(x.t, how.toxic, stream, how.attributes)
		}
	}
	return func() {
		for _, p := range proxies {
			p.heal(x.t)
		}
	}
}

func (x *system) killServer(i int) (repair func()) {
	x.servers[i].kill(x.t)
	return func() { x.servers[i].start(x.t) }
}

// killHanging kills a server whose disk hangs. The process ends when the disk responds again, at the latest.
func (x *system) killHanging(s *server, thaw func()) {
	s.signal(x.t, syscall.SIGKILL)
	thaw()
	<-s.ended
}

func (x *system) restartServer(i int) (repair func()) {
	x.servers[i].terminate(x.t)
	return func() { x.servers[i].start(x.t) }
}

// drainServer stops a server in order. Requests that it gets itself are served until it is not ready, and some more.
func (x *system) drainServer(i int) (repair func()) {
	s := x.servers[i]
	direct := startLoad(x.t, loadOptions{namespace: fmt.Sprintf("direct-%d", x.round), rate: 100}, s)
	direct.awaitPings(x.t, 10)
	s.signal(x.t, syscall.SIGTERM)
	s.awaitReady(x.t, false)
	direct.awaitPings(x.t, 5)
	require.Empty(x.t, direct.stop(x.t).failures)
	<-s.ended
	return func() { s.start(x.t) }
}

func (x *system) suspendServer(i int) (repair func()) {
	x.servers[i].signal(x.t, syscall.SIGSTOP)
	return func() { x.servers[i].signal(x.t, syscall.SIGCONT) }
}

// stopRedis kills a Redis, which has its data when it starts again.
func (x *system) stopRedis(p *redistest.Process) (repair func()) {
	p.Stop(x.t)
	return func() { p.Start(x.t) }
}

// suspendRedis is worse than a kill: a primary that goes on believes for a while that it is still the primary.
func (x *system) suspendRedis(p *redistest.Process) (repair func()) {
	p.Freeze(x.t)
	return func() { p.Thaw(x.t) }
}

// failOver asks a Sentinel to replace the primary although it is up.
func (x *system) failOver(sentinel int) (repair func()) {
	client := redis.NewSentinelClient(&redis.Options{Addr: x.watched.Sentinels[sentinel].Addr, MaxRetries: -1})
	defer client.Close()
	await(x.t, "a Sentinel to begin a failover", func() bool {
		return client.Failover(context.Background(), redistest.MasterName).Err() == nil
	})
	return func() {}
}

// awaitPrimary waits until the Sentinels have made a Redis the primary, the old one is none any more, and pings
// succeed.
func (x *system) awaitPrimary(p *redistest.Process) {
	x.t.Helper()
	await(x.t, "a new primary", func() bool { return x.watched.Primary() == p })
	old := x.redis.Client(x.t)
	await(x.t, "the old primary to be none", func() bool {
		info, err := old.Info(context.Background(), "replication").Result()
		return err != nil || strings.Contains(info, "role:slave")
	})
	x.load.awaitPings(x.t, 50)
}

// fillRedis gives a Redis less memory than it takes. All are repaired: one can have become the primary meanwhile.
func (x *system) fillRedis(p *redistest.Process, all ...*redistest.Process) (repair func()) {
	setMemory(x.t, p, "1mb")
	return func() {
		for _, node := range all {
			setMemory(x.t, node, "0")
		}
	}
}

func setMemory(t testing.TB, node *redistest.Process, limit string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: node.Addr, MaxRetries: -1})
	defer client.Close()
	await(t, "Redis to take a setting", func() bool {
		return client.ConfigSet(context.Background(), "maxmemory", limit).Err() == nil
	})
}

// fillDisk fills the disk.
func (x *system) fillDisk() (repair func()) {
	ballast := filepath.Join(x.disk.dir, "ballast")
	err := os.WriteFile(ballast, make([]byte, tmpfsMegabytes<<20), 0o600)
	require.ErrorIs(x.t, err, syscall.ENOSPC)
	return func() { require.NoError(x.t, os.Remove(ballast)) }
}

// pause waits for a random time.
func (x *system) pause(most time.Duration) { time.Sleep(rand.N(most)) }

// feedKey is what Redis has of the feed of the namespace chat besides its entries. While its field s is there, servers
// may not know of the feed yet; it restarts, with a reset, when they do.
const feedKey = "presence:feed:{presence:chat}"

// beginFeed begins the feed before other servers start, which then know of it from the start. So tests do not wait
// until servers that run would know.
func beginFeed(t testing.TB, redis *redistest.Process, s *server) {
	t.Helper()
	create(t, redis, s)
	await(t, "the feed", func() bool {
		return s.request(t, "GET", "/v1/namespaces/chat/changes").failure() == "" &&
			redis.Client(t).Exists(t.Context(), feedKey).Val() == 1
	})
	require.NoError(t, redis.Client(t).HDel(t.Context(), feedKey, "s").Err())
}

// awaitFeed waits until all servers know of the feed.
func awaitFeed(t testing.TB, redis *redistest.Process, s *server) {
	t.Helper()
	client := redis.Client(t)
	create(t, redis, s)
	await(t, "a feed that all servers know of", func() bool {
		r := s.request(t, "GET", "/v1/namespaces/chat/changes") // so that its watermark advances
		fields, err := client.HGetAll(t.Context(), feedKey).Result()
		return r.failure() == "" && err == nil && fields["w"] != "" && fields["s"] == ""
	})
}

// create makes the namespace exist, without users, unless it does: others have no feed.
func create(t testing.TB, redis *redistest.Process, s *server) {
	t.Helper()
	if redis.Client(t).ZScore(t.Context(), "presence::namespaces", "chat").Err() == nil {
		return
	}
	s.served(t, "POST", userPath("nobody")+"/ping", nil)
	s.served(t, "DELETE", userPath("nobody"), nil)
}
