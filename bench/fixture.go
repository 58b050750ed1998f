package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The servers that a run can need. Each is started when it is first used.
const (
	redisServer  = "redis"      // redis-server
	webdisServer = "webdis"     // Debian's package
	bareServer   = "bare"       // Echo without lastseen's middleware
	coalescing   = "coalescing" // lastseen on Redis, with coalescing
	direct       = "direct"     // lastseen on Redis, one command per request
	embedded     = "embedded"   // lastseen on a file
	lists        = "lists"      // lastseen on a file with more users, for lists
	feeds        = "feeds"      // cmd/lastseen on Redis, with and without changes feeds
)

// The namespaces.
const (
	randomNS   = "bench"   // options.users random users
	webdisNS   = "webdis"  // the same users, for webdis
	numberedNS = "numbers" // as many users with consecutive numbers, for redis-benchmark
	bulkNS     = "bulk"    // the same random users, for bulk pings
	fewNS      = "few"     // fewUsers users
	manyNS     = "many"    // options.many users
	tiedNS     = "tied"    // options.users users, all last seen in one millisecond
	spreadNS   = "spread-" // prefix of spreadOver namespaces that have options.users users together
)

const (
	fewUsers   = 10_000 // in the small namespace
	spreadOver = 1000   // namespaces with the prefix spreadNS
)

// fixture starts and fills the servers of a run, and stops them at its end.
type fixture struct {
	options
	ctx     context.Context //nolint:containedctx // bounds what is started in this run
	dir     string
	log     io.Writer
	ids     users
	started []*server       // all processes, in the order in which they were started
	servers []*server       // those that workloads share
	loaded  map[string]bool // "server namespace"
	half    map[string]int  // half of the highest rate of pings in an open loop, by server
	// measured are the measurements of workloads that are measured once in a run.
	measured map[string]outcome

	followed func() // closes the readers of a changes feed and stops their servers; nil without readers
}

func newFixture(ctx context.Context, o options, log io.Writer) (*fixture, error) {
	dir, err := os.MkdirTemp(o.dir, "lastseen-bench-")
	if err != nil {
		return nil, err
	}
	return &fixture{
		options: o, ctx: ctx, dir: dir, log: log, ids: newUsers(o.users),
		loaded: map[string]bool{}, half: map[string]int{}, measured: map[string]outcome{},
	}, nil
}

// close stops all servers, the last one first, and removes their files.
func (f *fixture) close() {
	for _, s := range slices.Backward(f.started) {
		s.stop()
	}
	_ = os.RemoveAll(f.dir) // temporary files
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fixture) logf(format string, args ...any) {
	fmt.Fprintf(f.log, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// server returns the server with a name and starts it if it is not running yet.
func (f *fixture) server(name string) (*server, error) {
	for _, s := range f.servers {
		if s.name == name {
			return s, s.alive()
		}
	}
	s, err := f.launch(name)
	if err == nil {
		f.servers = append(f.servers, s)
	}
	return s, err
}

func (f *fixture) launch(name string) (*server, error) {
	switch name {
	case redisServer:
		return f.launchRedis(name)
	case webdisServer:
		return f.launchWebdis()
	case bareServer:
		return f.launchServe(name, "")
	case coalescing:
		return f.launchServe(name, redisServer, "--coalesce")
	case direct:
		return f.launchServe(name, redisServer)
	case embedded, lists:
		return f.launchServe(name, f.path(name+".db"))
	case feeds:
		return f.launchFeeds()
	case thisVersion, beforeVersion:
		return f.launchVersion(name, name, redisServer)
	case thisVersion + onFile, beforeVersion + onFile:
		return f.launchVersion(name, strings.TrimSuffix(name, onFile), f.path(name+".db"))
	default:
		return nil, fmt.Errorf("unknown server %q", name)
	}
}

// launchServe starts one of the servers in serve.go.
func (f *fixture) launchServe(name, store string, args ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return f.launchOn(store, name, self, append([]string{"serve"}, args...)...)
}

// launchBinary builds cmd/lastseen and starts it with its default settings, except for the store and more arguments.
func (f *fixture) launchBinary(name, store string, args ...string) (*server, error) {
	binary, err := f.build()
	if err != nil {
		return nil, err
	}
	return f.launchOn(store, name, binary, args...)
}

// build builds cmd/lastseen and returns the name of the program.
func (f *fixture) build() (string, error) {
	binary := f.path("lastseen")
	_, _, err := runTool(f.ctx, 5*time.Minute, "go", "build", "-C", "..", "-o", binary, "./cmd/lastseen")
	return binary, err
}

// launchOn starts a command with a store: the redisServer of this run, or a file.
func (f *fixture) launchOn(store, name, command string, args ...string) (*server, error) {
	if store == redisServer {
		redis, err := f.server(redisServer)
		if err != nil {
			return nil, err
		}
		return f.launchWith(redis, name, command, args...)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return f.start(server{name: name, port: port}, command,
		append(args, "--listen", "127.0.0.1:"+port, "--store", store)...)
}

// launchWith starts a command with a Redis.
func (f *fixture) launchWith(redis *server, name, command string, args ...string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return f.start(server{name: name, port: port, store: redis}, command,
		append(args, "--listen", "127.0.0.1:"+port, "--store", "redis://127.0.0.1:"+redis.port)...)
}

// launchRedis starts a Redis without persistence.
func (f *fixture) launchRedis(name string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return f.start(server{name: name, port: port}, "redis-server", "--bind", "127.0.0.1", "--port", port,
		"--dir", f.dir, "--save", "", "--appendonly", "no")
}

// launchWebdis starts webdis with the configuration of Debian's package, except for addresses, the log and running in
// the foreground.
func (f *fixture) launchWebdis() (*server, error) {
	redis, err := f.server(redisServer)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`{"redis_host": "127.0.0.1", "redis_port": %s, "redis_auth": null,
		"http_host": "127.0.0.1", "http_port": %s, "threads": 2, "daemonize": false, "pidfile": %q, "database": 0,
		"acl": [{"disabled": ["DEBUG"]}], "verbosity": 3, "logfile": %q}`,
		redis.port, port, f.path("webdis.pid"), f.path("webdis-own.log"))
	if err := os.WriteFile(f.path("webdis.json"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	return f.start(server{name: webdisServer, port: port, store: redis}, "webdis", f.path("webdis.json"))
}

// fill loads the users of a namespace through a server, once. Their last-seen times are in the last ten minutes, or
// for changes feeds hours ago.
func (f *fixture) fill(s *server, namespace string) error {
	key := s.name + " " + namespace
	if s.store != nil {
		key = s.store.name + " " + namespace
	}
	if f.loaded[key] {
		return nil
	}
	ids := f.population(namespace)
	f.logf("%s: loading %d users into %s", s.name, ids.len(), namespace)
	over, newest := 10*time.Minute, time.Now()
	switch namespace {
	case tiedNS:
		over = 0
	case greyFeedOffNS, greyFeedOnNS, feedNS:
		newest = newest.Add(-3 * time.Hour)
	}
	err := ids.load(f.ctx, s.url, namespace, evenly(newest, over, ids.len()))
	if err == nil && namespace == sayingNS {
		err = ids.say(f.ctx, s.url, namespace)
	}
	f.loaded[key] = err == nil
	return err
}

// population returns the users of a namespace.
func (f *fixture) population(namespace string) users {
	switch namespace {
	case fewNS:
		return f.ids[:min(f.users, fewUsers)*idSize]
	case manyNS:
		return newUsers(f.many)
	case numberedNS:
		return newNumbered(f.users)
	default:
		return f.ids
	}
}

// idsFile writes the users of a namespace, one after the other, to a file and returns its name.
func (f *fixture) idsFile(namespace string) (string, error) {
	name := f.path("ids-" + namespace)
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	return name, os.WriteFile(name, f.population(namespace), 0o600)
}

// commands returns the command line of each server.
func (f *fixture) commands() []string {
	var commands []string
	for _, s := range f.servers {
		commands = append(commands, s.name+": "+commandLine(s.cmd.Args))
	}
	return commands
}
