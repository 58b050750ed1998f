//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// fault is something that breaks under load, and what has to hold.
type fault struct {
	row  string // of docs/faults.md
	name string

	// What there is.
	store    func(x *system) // starts what the servers need
	servers  int             // default 1
	args     []string        // of each
	load     loadOptions
	followed bool                                // by watchers of the changes feed, and by a webhook
	front    func(x *system) *server             // through which the load reaches the servers; default none
	others   func(x *system) (string, []*server) // the namespace and servers of a load that does not notice

	// What happens, and how often.
	rounds    int // default 1
	breaks    func(x *system) (repair func())
	meanwhile func(x *system) // what clients get, before the repair; optional
	loses     time.Duration   // acknowledged writes of this time before it breaks, and until it is repaired
	crash     bool            // kills the servers at the end: acknowledged writes are in the data file

	// What has to hold in the end, beside the ledger of acknowledged writes.
	failures []string // that clients may get
	signs    []string // for operators: metrics above 0, and texts in a log, as the row has them
	check    func(x *system)
}

// system is what a fault breaks.
type system struct {
	*fault
	t        *testing.T
	redis    *redistest.Process  // the primary; nil without Redis
	watched  *redistest.Sentinel // nil without Sentinels
	cluster  *redistest.Cluster  // nil without a Cluster
	proxy    proxy
	island   *island // of the second server
	disk     *disk
	stores   []string // for each server; the first is also for those that have none
	servers  []*server
	load     *load
	bystands *load
	watchers *watchers
	receiver *receiver // of a webhook; nil unless followed
	round    int
}

// TestFaults breaks things under load, one after the other: see [faults]. Everything acknowledged is there afterwards,
// no response was wrong, and all works again by itself.
func TestFaults(t *testing.T) {
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.run(t)
		})
	}
}

// TestRows compares the tests with the rows of docs/faults.md.
func TestRows(t *testing.T) {
	guide, err := os.ReadFile("../../docs/faults.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(guide), "| --- | --- | --- | --- |\n")
	require.True(t, ok)
	rows := map[string]bool{}
	for row := range strings.Lines(text) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(row, "| "), " | "); ok {
			rows[regexp.MustCompile(`\[(.*?)\]\(.*?\)`).ReplaceAllString(name, "$1")] = false
		}
	}
	for _, f := range faults() {
		require.Contains(t, rows, f.row, f.name)
		rows[f.row] = true
		for _, sign := range f.signs {
			require.Contains(t, text, sign, f.name)
		}
	}
	for row, tests := range otherFaults() {
		require.Contains(t, rows, row)
		require.NotEmpty(t, tests)
		rows[row] = true
	}
	// A load that is too much for a server on every machine needs a slow store: api.TestSaturatedStore.
	delete(rows, "more load than the server can take")
	for row, tested := range rows {
		require.True(t, tested, "no test of: %s", row)
	}
}

// run breaks a system, repairs it and checks everything.
func (f fault) run(t *testing.T) {
	x := f.start(t)
	for x.round = range max(f.rounds, 1) {
		x.load.awaitPings(t, 50)
		end := x.suspect()
		repair := f.breaks(x)
		if f.meanwhile != nil {
			f.meanwhile(x)
		}
		repair()
		end(time.Now())
		x.recover()
	}
	if f.crash {
		x.crash()
	}
	x.finish()
}

// start starts what a fault breaks, and waits until all works.
func (f fault) start(t *testing.T) *system {
	x := &system{fault: &f, t: t}
	f.store(x)
	if f.followed {
		f.load.ledger = newLedger()
		x.receiver = startReceiver(t, f.load.ledger, followThresholds())
		f.args = append(f.args, hookArgs(t, map[string]*receiver{"app": x.receiver})...)
	}
	for i := range max(f.servers, 1) {
		x.startServer(i)
		if i == 0 && f.followed && x.redis != nil {
			beginFeed(t, x.redis, x.servers[0])
		}
	}
	reached := x.servers
	if f.front != nil {
		reached = []*server{f.front(x)}
	}
	x.load = startLoad(t, f.load, reached...)
	x.load.awaitPings(t, 50)
	if f.others != nil {
		namespace, servers := f.others(x)
		x.bystands = startLoad(t, loadOptions{namespace: namespace, rate: 50}, servers...)
		x.bystands.awaitPings(t, 20)
	}
	if f.followed {
		if x.redis != nil {
			awaitFeed(t, x.redis, x.servers[0])
		}
		x.watchers = startWatchers(t, x.load, testenv.Choose(3, 1), followThresholds())
		x.watchers.awaitUpdates(t, 10)
		x.receiver.begin(t)
	}
	return x
}

// startServer starts one of the servers.
func (x *system) startServer(i int) {
	x.t.Helper()
	start, store, args := startServer, x.stores[min(i, len(x.stores)-1)], x.args
	if i > 0 && x.others != nil && !slices.Contains(args, calm()[0]) {
		args = append(slices.Clone(args), calm()...) // of those who must not notice, a busy machine neither
	}
	if i == 1 && x.island != nil {
		start = x.island.startServer
	}
	x.servers = append(x.servers, start(x.t, store, args...))
}

// recover waits until all works again.
func (x *system) recover() {
	x.t.Helper()
	for _, s := range x.servers {
		s.awaitReady(x.t, true)
	}
	x.load.awaitPings(x.t, 50)
	if x.watchers != nil {
		x.watchers.awaitUpdates(x.t, 5)
		x.receiver.awaitTrue(x.t)
	}
	for _, s := range x.servers {
		x.load.verify(x.t, s)
	}
}

// suspect begins the time whose acknowledged writes can be lost, once there are some that cannot.
func (x *system) suspect() (end func(time.Time)) {
	x.t.Helper()
	if x.loses == 0 {
		return func(time.Time) {}
	}
	await(x.t, "acknowledgements that cannot be lost", func() bool {
		return x.load.countBefore(time.Now().Add(-x.loses)) >= 50
	})
	return x.load.suspect(time.Now().Add(-x.loses))
}

// crash kills all servers and starts them again.
func (x *system) crash() {
	x.t.Helper()
	end := x.suspect()
	for _, s := range x.servers {
		s.kill(x.t)
		s.start(x.t)
	}
	end(time.Now())
	x.recover()
}

// finish stops the clients, and checks what they got, what is stored, and what operators see.
func (x *system) finish() {
	t := x.t
	t.Helper()
	if x.bystands != nil {
		require.Empty(t, x.bystands.stop(t).failures, "of those who must not notice")
	}
	if x.watchers != nil {
		x.load.awaitPings(t, 200) // whose users are certain again
		x.watchers.finish(t, x.servers[len(x.servers)-1])
		x.receiver.awaitTrue(t)
		t.Logf("the receiver of a webhook: %+v", x.receiver.snapshotStats())
	}
	requireOnly(t, x.load.stop(t), append(x.failures, x.crashFailures()...)...)
	for _, s := range x.servers {
		t.Logf("%d users verified", len(x.load.verify(t, s)))
		if x.bystands != nil {
			x.bystands.verify(t, s)
		}
		if x.cluster == nil { // in which a primary can stay away
			s.awaitMetric(t, "lastseen_breaker_state", 0)
		}
	}
	for _, sign := range x.signs {
		await(t, sign, func() bool { return x.shows(sign) })
	}
	if x.check != nil {
		x.check(x)
	}
}

// crashFailures are what clients may get because of [system.crash].
func (x *system) crashFailures() []string {
	if x.fault.crash {
		return []string{unreachable}
	}
	return nil
}

// shows reports whether a server shows a sign for operators.
func (x *system) shows(sign string) bool {
	for _, s := range x.servers {
		if strings.HasPrefix(sign, "lastseen_") && s.metric(x.t, sign) > 0 || strings.Contains(s.log.String(), sign) {
			return true
		}
	}
	return false
}

// The stores of faults.

// onRedis is one Redis, with settings.
func onRedis(settings ...string) func(*system) {
	return func(x *system) {
		x.redis = redistest.StartProcess(x.t, settings...)
		x.stores = []string{x.redis.URL()}
	}
}

// onSentinel is a primary, a replica and three Sentinels.
func onSentinel(x *system) {
	x.watched = redistest.StartSentinel(x.t)
	x.redis, x.stores = x.watched.Nodes[0], []string{x.watched.URL()}
}

// onCluster is a Cluster whose primaries have a number of replicas.
func onCluster(replicas int) func(*system) {
	return func(x *system) {
		x.cluster = redistest.StartCluster(x.t, replicas, redistest.QuickToFail)
		x.stores = []string{x.cluster.URL()}
	}
}

// onProxy has the first server reach Redis through a proxy, and the others directly.
func onProxy(x *system) {
	onRedis()(x)
	x.proxy = startProxy(x.t, x.redis.Addr)
	x.stores = []string{x.proxy.url(), x.redis.URL()}
}

// onIsland has the second server in its own network.
func onIsland(x *system) {
	x.island = newIsland(x.t)
	redis, url := x.island.startRedis(x.t)
	x.redis, x.stores = redis, []string{redis.URL(), url}
}

// onFile is a data file.
func onFile(x *system) { x.stores = []string{filepath.Join(x.t.TempDir(), "lastseen.db")} }

// onDisk is a data file on its own disk.
func onDisk(x *system) {
	x.disk = mountDisk(x.t)
	x.stores = []string{filepath.Join(x.disk.dir, "lastseen.db")}
}

// onSmallDisk is a data file on a small disk in memory.
func onSmallDisk(x *system) {
	x.disk = mountTmpfs(x.t)
	x.stores = []string{filepath.Join(x.disk.dir, "lastseen.db")}
}

// What clients get meanwhile.

// failing waits until n requests have failed.
func failing(n int) func(*system) { return func(x *system) { x.load.awaitFailures(x.t, n) } }

// readsOnly waits until pings fail with a code and /readyz fails, and then for lookups that succeed.
func readsOnly(code string) func(*system) {
	return func(x *system) {
		await(x.t, code, func() bool { return x.load.snapshot().failures[code] >= 20 })
		x.servers[0].awaitReady(x.t, false)
		x.load.awaitLookups(x.t, 20)
		require.True(x.t, x.servers[0].healthy())
	}
}

// withoutRedis checks that what does not need Redis is served, and memory is bounded.
func withoutRedis(x *system) {
	x.load.awaitFailures(x.t, testenv.Choose(500, 50))
	for _, path := range []string{"/healthz", "/version", "/docs/", "/openapi.json"} {
		require.Equal(x.t, http.StatusOK, x.servers[0].request(x.t, http.MethodGet, path).status, path)
	}
	x.servers[0].requireLittleMemory(x.t)
}

// namespaceElsewhere returns a namespace whose users, like the list of namespaces, are on another primary. The list is
// read to create a namespace.
func namespaceElsewhere(x *system) (string, []*server) {
	away := x.cluster.Owner(x.t, "presence:chat")
	for i := range 100 {
		name := fmt.Sprintf("elsewhere-%d", i)
		if x.cluster.Owner(x.t, "presence:"+name) != away {
			return name, x.servers
		}
	}
	x.t.Fatal("all namespaces are on one primary")
	return "", nil
}
