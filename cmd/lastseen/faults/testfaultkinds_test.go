//go:build faults

package faults

import (
	"context"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// faultKind is one of the faults of [TestChaos].
type faultKind struct {
	name        string
	part        string // what breaks: two faults of one part never overlap
	least, most time.Duration
	loses       bool // acknowledged writes, without --redis-wait
	begin       func(c *chaos, f fault) (end func())
}

// faultKinds returns all of them.
func faultKinds() []*faultKind {
	const second = time.Second
	kinds := []*faultKind{
		{"server killed", "server", 0, 5 * second, false, (*chaos).killServer},
		{"server restarted", "server", 0, 3 * second, false, (*chaos).restartServer},
		{"server suspended", "server", second, 8 * second, false, (*chaos).suspendServer},
		{"clock of a server set", "clock", 5 * second, 12 * second, false, (*chaos).setClock},
		{"primary killed", "redis", 0, 12 * second, true, (*chaos).killPrimary},
		{"replica killed", "redis", 0, 8 * second, false, (*chaos).killReplica},
		{"planned failover", "redis", 0, second, true, (*chaos).failOver},
		{"primary suspended", "redis", second, 10 * second, true, (*chaos).suspendPrimary},
		{"Redis out of memory", "redis", 2 * second, 8 * second, false, (*chaos).fillRedis},
		{"burst of requests", "load", 3 * second, 10 * second, false, (*chaos).burstOfRequests},
	}
	for _, how := range spoils() {
		kinds = append(kinds, &faultKind{
			"link " + how.name, "link", 2 * second, 10 * second, false,
			func(c *chaos, f fault) func() { return c.spoilLink(how, f) },
		})
	}
	return kinds
}

func (c *chaos) killServer(f fault) (end func()) {
	s := c.servers[f.variant]
	s.kill(c.t)
	return func() { s.start(c.t) }
}

func (c *chaos) restartServer(f fault) (end func()) {
	s := c.servers[f.variant]
	s.terminate(c.t)
	return func() { s.start(c.t) }
}

func (c *chaos) suspendServer(f fault) (end func()) {
	s := c.servers[f.variant]
	s.signal(c.t, syscall.SIGSTOP)
	return func() { s.signal(c.t, syscall.SIGCONT) }
}

// setClock sets the clock of the machine of the first server, by hours that depend on the schedule.
func (c *chaos) setClock(f fault) (end func()) {
	hours := []time.Duration{1, -1, 1000, -1000}[f.lasts/(100*time.Millisecond)%4]
	c.clock.set(c.t, hours*time.Hour)
	return func() { c.clock.set(c.t, 0) }
}

// killPrimary kills Redis and starts it again with its data, before or after Sentinels made another one the primary.
func (c *chaos) killPrimary(fault) (end func()) {
	primary := c.primary
	primary.Stop(c.t)
	return func() { primary.Start(c.t) }
}

func (c *chaos) killReplica(f fault) (end func()) {
	replica := c.replica(f)
	replica.Stop(c.t)
	return func() { replica.Start(c.t) }
}

// replica returns one of the replicas.
func (c *chaos) replica(f fault) *redistest.Process {
	for i := range c.watched.Nodes {
		node := c.watched.Nodes[(f.variant+i)%len(c.watched.Nodes)]
		if node != c.primary {
			return node
		}
	}
	return nil
}

// failOver asks a Sentinel to replace the primary although it is up.
func (c *chaos) failOver(f fault) (end func()) {
	sentinel := redis.NewSentinelClient(&redis.Options{
		Addr: c.watched.Sentinels[f.variant%len(c.watched.Sentinels)].Addr, MaxRetries: -1,
	})
	defer sentinel.Close()
	await(c.t, "a Sentinel to begin a failover", func() bool {
		return sentinel.Failover(context.Background(), redistest.MasterName).Err() == nil
	})
	return func() {}
}

// suspendPrimary is worse than a kill: when Redis goes on, it believes for a while that it is still the primary.
func (c *chaos) suspendPrimary(fault) (end func()) {
	primary := c.primary
	primary.Freeze(c.t)
	return func() { primary.Thaw(c.t) }
}

// fillRedis gives the primary less memory than it takes.
func (c *chaos) fillRedis(fault) (end func()) {
	c.setMemory(c.primary, "1mb")
	return func() {
		for _, node := range c.watched.Nodes { // a failover can have happened on a busy machine
			c.setMemory(node, "0")
		}
	}
}

func (c *chaos) setMemory(node *redistest.Process, limit string) {
	client := redis.NewClient(&redis.Options{Addr: node.Addr, MaxRetries: -1})
	defer client.Close()
	await(c.t, "Redis to take a setting", func() bool {
		return client.ConfigSet(context.Background(), "maxmemory", limit).Err() == nil
	})
}

// spoilLink spoils the commands of the last server, the replies, or both.
func (c *chaos) spoilLink(how spoil, f fault) (end func()) {
	for _, stream := range [][]string{{"upstream"}, {"downstream"}, {"upstream", "downstream"}}[f.variant] {
		c.link.spoil(c.t, how.toxic, stream, how.attributes)
	}
	return func() { c.link.heal(c.t) }
}

func (c *chaos) burstOfRequests(f fault) (end func()) {
	end = c.burst(uint64(f.lasts))
	c.t.Cleanup(end)
	return end
}
