//go:build faults

package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
)

const (
	// replicationWindow is far beyond the time in which a primary has sent what it acknowledged to its replica.
	replicationWindow = 5 * time.Second
	// flushWindow is far beyond what a kill can lose with --sync 1s: that second and the flush in progress, of a few
	// kilobytes.
	flushWindow = 3 * time.Second
)

// What clients may get.
const (
	unreachable      = "unreachable" // no response
	storeUnavailable = "503 store_unavailable"
	storeFull        = "503 store_full"
	overloaded       = "503 overloaded" // the machine is too busy for the load, or Redis is slow
)

// calm are settings of a server whose requests must not fail, also on a machine that is busy.
func calm() []string { return []string{"--redis-timeout", "2s", "--redis-dial-timeout", "1s"} }

// faults are the rows of docs/faults.md that one driver tests.
func faults() []fault {
	return slices.Concat(redisFaults(), failovers(), serverFaults(), diskFaults(), followedFaults())
}

// otherFaults are the tests of the rows that need more than the driver.
func otherFaults() map[string][]func(*testing.T) {
	return map[string][]func(*testing.T){
		"a clock is set": {TestClocks},
		"everybody pings at once after an outage":                       {TestStorm},
		"a client with a connection is killed or loses its connection":  {TestHeldConnectionsEnd},
		"the network between clients and a server drops everything":     {TestHeldNetworkCut},
		"a server with connections is killed":                           {TestHeldServerKilled},
		"a server with connections is stopped, as in a rolling restart": {TestHeldServersRestart},
		"Redis stops while clients hold connections":                    {TestHeldStoreStopped},
		"a client sends too many frames, or reads nothing":              {TestHeldFlood, TestHeldReaderTakesNothing},
		"Redis fails over while users call each other":                  {TestCallsInSentinelFailover},
		"a server is killed while users call each other":                {TestCallsWhenServerKilled},
		"Redis restarts without its data while users call each other":   {TestCallsWhenRedisIsEmpty},
		"a webhook's server or receiver fails": {
			TestWebhookHolderKilled, TestWebhookHolderSuspended, TestWebhookReceiverFails,
			TestWebhookInSentinelFailover,
		},
		"random faults for an hour": {TestChaos},
	}
}

func redisFaults() []fault {
	return []fault{{
		row: "Redis stops and restarts", name: "Redis killed",
		store: onRedis("--appendfsync", "always"), rounds: testenv.Choose(5, 2),
		breaks:    func(x *system) func() { return x.stopRedis(x.redis) },
		meanwhile: failing(50), failures: []string{storeUnavailable, overloaded},
		signs: []string{
			`lastseen_http_errors_total{code="store_unavailable"}`, `lastseen_pings_total{result="refused"}`,
			`lastseen_store_call_duration_seconds{outcome="unavailable"}`, "requests succeed again",
		},
	}, {
		row: "Redis is slow, silent or resets connections", name: "Redis spoiled",
		store: onProxy, load: loadOptions{workers: 50, readers: 10, rate: 600}, rounds: 2 * len(spoils()),
		breaks: func(x *system) func() {
			stream := []string{"upstream", "downstream"}[x.round%2] // commands or replies
			return x.spoil([]proxy{x.proxy}, spoils()[x.round/2], stream)
		},
		meanwhile: withoutRedis, failures: []string{storeUnavailable, overloaded},
		signs: []string{
			`lastseen_store_call_duration_seconds{outcome="unavailable"}`, "circuit breaker opened",
			"circuit breaker closed",
		},
	}, {
		row: "Redis is out of memory", name: "Redis full",
		store: onRedis("--maxmemory-policy", "noeviction"), args: calm(), rounds: testenv.Choose(5, 2),
		breaks:    func(x *system) func() { return x.fillRedis(x.redis, x.redis) },
		meanwhile: readsOnly(storeFull), failures: []string{storeFull, overloaded},
		signs: []string{
			`lastseen_http_errors_total{code="store_full"}`, `lastseen_store_call_duration_seconds{outcome="full"}`,
			"code=store_full",
		},
	}, {
		row: "a server loses its network to Redis", name: "partition",
		store: onIsland, servers: 2, args: calm(), rounds: testenv.Choose(5, 1),
		others: func(x *system) (string, []*server) { return "alone", x.servers[:1] },
		breaks: func(x *system) func() {
			x.island.redis.unplug(x.t)
			return func() { x.island.redis.plug(x.t) }
		},
		meanwhile: func(x *system) {
			x.load.awaitFailures(x.t, 50)
			x.servers[1].awaitReady(x.t, false)
			x.servers[1].awaitMetric(x.t, "lastseen_breaker_state", 2)
			require.Equal(x.t, storeUnavailable, x.servers[1].request(x.t, "GET", userPath("user-1")).failure())
			require.True(x.t, x.servers[0].ready(x.t))
		},
		failures: []string{storeUnavailable},
		signs: []string{
			`lastseen_http_errors_total{code="store_unavailable"}`, "circuit breaker opened", "circuit breaker closed",
		},
	}}
}

// failovers have loads in which most users ping once, so that a lost ping is not made up for by the next one.
func failovers() []fault {
	sentinel := fault{
		row: "a Sentinel failover", store: onSentinel, load: loadOptions{users: 100_000, rate: 500},
		meanwhile: func(x *system) { x.awaitPrimary(x.watched.Nodes[1]) },
		failures:  []string{storeUnavailable}, signs: []string{"requests succeed again"},
		check: func(x *system) {
			counted := x.servers[0].metric(x.t, `lastseen_http_errors_total{code="store_unavailable"}`)
			require.InDelta(x.t, x.load.snapshot().failed(), counted, 0, "the failures of clients")
		},
	}
	crash, planned, waits := sentinel, sentinel, sentinel
	crash.name, crash.loses = "failover", replicationWindow
	crash.breaks = func(x *system) func() {
		x.redis.Stop(x.t)
		return func() {}
	}
	planned.name, planned.loses, planned.signs = "planned failover", replicationWindow, nil
	planned.breaks = func(x *system) func() { return x.failOver(0) }
	waits.name, waits.args = "planned failover that waits for replicas", []string{"--redis-wait", "1"}
	waits.breaks = planned.breaks
	const row = "a Cluster primary fails; slots move"
	all := []fault{crash, waits, {
		row: row, name: "Cluster primary killed",
		store: onCluster(1), args: calm(), loses: replicationWindow, others: namespaceElsewhere,
		breaks: func(x *system) func() {
			x.cluster.Owner(x.t, "presence:chat").Stop(x.t)
			return func() {}
		},
		meanwhile: func(x *system) {
			x.load.awaitFailures(x.t, 20)
			x.bystands.awaitPings(x.t, 20)
			x.load.awaitPings(x.t, 50)
		},
		failures: []string{storeUnavailable},
	}, {
		row: row, name: "Cluster slots move",
		store: onCluster(0), args: calm(), rounds: testenv.Choose(10, 3),
		breaks: func(x *system) func() {
			owner := slices.Index(x.cluster.Primaries, x.cluster.Owner(x.t, "presence:chat"))
			to := x.cluster.Primaries[(owner+1)%len(x.cluster.Primaries)]
			x.cluster.MoveSlot(x.t, x.cluster.Slot(x.t, "presence:chat"), to, func() { x.load.awaitPings(x.t, 20) })
			return func() {}
		},
		failures: []string{storeUnavailable},
		check: func(x *system) {
			stats := x.load.snapshot()
			require.Less(x.t, stats.failed(), stats.pings/10, "calls are redirected")
		},
	}}
	if testenv.Full() {
		all = append(all, planned)
	}
	return all
}

func serverFaults() []fault {
	killed := fault{
		row: "the server is killed", rounds: testenv.Choose(20, 3), failures: []string{unreachable, overloaded},
		breaks: func(x *system) func() {
			x.pause(time.Second) // the moment of the kill is random
			began, repair := x.servers[0].metric(x.t, "process_start_time_seconds"), x.killServer(0)
			return func() {
				repair()
				require.Greater(x.t, x.servers[0].metric(x.t, "process_start_time_seconds"), began)
			}
		},
	}
	onRedisToo, onFileToo, flushed := killed, killed, killed
	onRedisToo.name, onRedisToo.store, onRedisToo.args = "server killed", onRedis(), calm()
	onFileToo.name, onFileToo.store, onFileToo.args = "server killed, sync 0", onFile, []string{"--sync", "0"}
	flushed.name, flushed.store, flushed.args = "server killed, sync 1s", onFile, []string{"--sync", "1s"}
	flushed.loses = flushWindow
	return []fault{onRedisToo, onFileToo, flushed, {
		row: "a rolling restart", name: "rolling restart",
		store: onRedis(), servers: 3, args: append(calm(), "--drain", "3s"), rounds: testenv.Choose(9, 3),
		front:     func(x *system) *server { return startNginx(x.t, x.servers) },
		breaks:    func(x *system) func() { return x.drainServer(x.round % 3) },
		meanwhile: func(x *system) { x.load.awaitPings(x.t, 50) },
		signs:     []string{"stopping"},
	}}
}

func diskFaults() (all []fault) {
	const row, fails = "the disk is full, read-only or hangs", "cannot write to the data file"
	for _, sync := range []string{"0", "1s"} {
		full := fault{
			row: row, name: "disk full, sync " + sync, store: onSmallDisk, args: []string{"--sync", sync},
			breaks: (*system).fillDisk, meanwhile: readsOnly(storeFull), failures: []string{storeFull}, crash: true,
		}
		hangs := fault{
			row: row, name: "disk hangs, sync " + sync, store: onDisk, args: []string{"--sync", sync},
			breaks:    func(x *system) func() { return x.disk.freeze(x.t) },
			meanwhile: readsOnly(storeUnavailable), failures: []string{storeUnavailable, overloaded}, crash: true,
		}
		if sync != "0" {
			full.loses, hangs.loses = flushWindow, flushWindow
		} else { // with the crash at the end, the metrics start again
			full.check = func(x *system) {
				require.Contains(x.t, x.servers[0].log.String(), fails)
				require.Contains(x.t, x.servers[0].log.String(), "the data file can be written to again")
			}
		}
		all = append(all, full, hangs)
	}
	if !testenv.Full() {
		all = all[:len(all)-1]
	}
	return append(all, fault{
		row: row, name: "disk read-only", store: onDisk, args: []string{"--sync", "0"},
		breaks: func(x *system) func() {
			x.disk.fail(x.t)
			return func() {
				require.Positive(x.t, x.servers[0].metric(x.t, "lastseen_file_flush_failures_total"))
				x.servers[0].terminate(x.t)
				x.disk.repair(x.t)
				x.servers[0].start(x.t)
			}
		},
		meanwhile: readsOnly(storeUnavailable), failures: []string{storeUnavailable, unreachable},
		signs: []string{fails},
	}, fault{
		row: row, name: "killed while the disk hangs", store: onDisk, args: []string{"--sync", "0"},
		breaks: func(x *system) func() {
			thaw := x.disk.freeze(x.t)
			x.load.awaitLookups(x.t, 50) // which go on while pings wait
			return func() {
				x.killHanging(x.servers[0], thaw)
				x.servers[0].start(x.t)
			}
		},
		failures: []string{unreachable, storeUnavailable},
	})
}

// followThresholds are so short that many users turn yellow while a test runs.
func followThresholds() lastseen.Thresholds {
	return lastseen.Thresholds{Green: 2 * time.Second, Yellow: 6 * time.Second}
}

// followedFaults break what is between the writers of a namespace and those who watch it over Server-Sent Events. Each
// watcher misses no change and gets none twice, or is told to begin again by a reset.
func followedFaults() []fault {
	all := []fault{{
		row: "a server with followers is killed", name: "followed servers killed",
		store: onRedis(), servers: 3, args: calm(), rounds: testenv.Choose(12, 3),
		failures:  []string{unreachable, overloaded},
		breaks:    func(x *system) func() { return x.killServer(x.round % 3) },
		meanwhile: func(x *system) { x.watchers.awaitUpdates(x.t, 5) }, // at other servers
		check: func(x *system) {
			most, _ := x.watchers.resets()
			require.Zero(x.t, most, "resets: the feed is in Redis")
			require.Zero(x.t, x.receiver.snapshotStats().resets, "resets of a webhook: where it is is in Redis")
			for _, w := range x.watchers.all {
				require.Greater(x.t, w.snapshot().connects, 1, w.name)
			}
		},
	}, {
		row: "a server with followers is killed", name: "followed server killed, embedded store",
		store: onFile, rounds: testenv.Choose(5, 1), failures: []string{unreachable, overloaded}, loses: flushWindow,
		breaks: func(x *system) func() { return x.killServer(0) },
		check: func(x *system) {
			_, fewest := x.watchers.resets()
			require.GreaterOrEqual(x.t, fewest, max(x.rounds, 1), "resets: the feed is in memory")
			require.GreaterOrEqual(x.t, x.receiver.snapshotStats().resets, max(x.rounds, 1), "resets of a webhook")
		},
	}, {
		name: "followed Redis killed", store: onRedis("--appendfsync", "always"), servers: 2,
		rounds: testenv.Choose(5, 1), breaks: func(x *system) func() { return x.stopRedis(x.redis) },
		meanwhile: failing(20), signs: []string{"cannot follow changes; trying again"},
	}, {
		name: "followed failover", store: onSentinel, servers: 2, loses: replicationWindow,
		breaks: func(x *system) func() {
			x.redis.Stop(x.t)
			return func() {}
		},
		meanwhile: func(x *system) { x.awaitPrimary(x.watched.Nodes[1]) },
	}, {
		name: "followed Cluster primary killed", store: onCluster(1), servers: 2, loses: replicationWindow,
		breaks: func(x *system) func() {
			x.cluster.Owner(x.t, "presence:chat").Stop(x.t)
			return func() {}
		},
		meanwhile: failing(20),
	}, {
		name: "followed server with a slow Redis", store: onProxy, servers: 2,
		rounds: testenv.Choose(3, 1), // slow, silent, reset: few requests fail if connections are cut off now and then
		others: func(x *system) (string, []*server) { return "alone", x.servers[1:] },
		breaks: func(x *system) func() {
			return x.spoil([]proxy{x.proxy}, spoils()[x.round], "downstream")
		},
		meanwhile: failing(20),
	}}
	for i := range all {
		f := &all[i]
		f.followed = true
		f.args = append(f.args, "--green", "2s", "--yellow", "6s", "--ping-interval", "1s")
		f.load = loadOptions{users: 300, rate: 100, leaves: 0.2}
		if f.row == "" {
			f.row = "Redis fails, fails over or is slow while clients follow"
			f.failures = []string{storeUnavailable, overloaded}
		}
	}
	return all
}
