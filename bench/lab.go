package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The servers that a run may need; each is started when it is first asked for.
const (
	onRedis   = "redis"      // redis-server itself
	webdis    = "webdis"     // Debian's package
	echoAlone = "bare"       // Echo without our middleware
	merging   = "coalescing" // lastseen on Redis, with coalescing
	single    = "single"     // lastseen on Redis, one command for each request
	embedded  = "embedded"   // lastseen on a file
	merged    = "embedded-coalescing"
	listing   = "lists" // lastseen on a file, for lists: it holds more users
)

// The namespaces.
const (
	crowd    = "bench"   // of options.users random users
	foreign  = "webdis"  // the same users again, for webdis
	numbered = "numbers" // as many users, of consecutive numbers, for redis-benchmark
	bulk     = "bulk"    // the same random users again, for bulk pings
	few      = "few"     // of 10,000 users
	many     = "many"    // of options.many users
	tied     = "tied"    // of options.users users, all seen in one millisecond
	spread   = "spread-" // begins the names of 1,000 namespaces that have options.users users together
)

// fewUsers is how many are in the small namespace that a large one is compared with.
const fewUsers = 10_000

// spreadOver is how many namespaces users are spread over where their number is what is measured.
const spreadOver = 1000

// server is a process with what is behind it.
type server struct {
	*process
	store *process // the Redis that it asks; nil if there is none
}

// lab is everything that a run started.
type lab struct {
	options
	ctx       context.Context //nolint:containedctx // bounds what is started in this run
	dir       string
	log       io.Writer
	ids       users
	processes processes
	servers   serverList
	loaded    map[string]bool // "server namespace"
	binary    func() (string, error)
	half      map[string]int // of the highest rates in open loops, by server
}

func newLab(ctx context.Context, o options, log io.Writer) (*lab, error) {
	dir, err := os.MkdirTemp(o.dir, "lastseen-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{
		options: o, ctx: ctx, dir: dir, log: log, ids: newUsers(o.users),
		processes: processes{dir: dir}, loaded: map[string]bool{}, half: map[string]int{},
	}
	l.binary = sync.OnceValues(l.build)
	return l, nil
}

func (l *lab) close() {
	l.processes.stopAll()
	_ = os.RemoveAll(l.dir) // of no use any more
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) logf(format string, args ...any) {
	fmt.Fprintf(l.log, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// build compiles the program itself.
func (l *lab) build() (string, error) {
	out := l.path("lastseen")
	output, err := exec.CommandContext(l.ctx, "go", "build", "-C", l.root, "-o", out, "./cmd/lastseen").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building lastseen: %w: %s", err, output)
	}
	return out, nil
}

// server returns a server by its name, started if it is not running yet.
func (l *lab) server(name string) (*server, error) {
	if s := l.servers.get(name); s != nil {
		return s, s.alive()
	}
	s, err := l.launch(name)
	if err != nil {
		return nil, err
	}
	l.servers.add(name, s)
	return s, nil
}

func (l *lab) launch(name string) (*server, error) {
	switch name {
	case onRedis:
		return l.launchRedis()
	case webdis:
		return l.launchWebdis()
	case echoAlone:
		return l.launchOurs(name)
	case merging:
		return l.launchOnRedis(name, "-coalesce")
	case single:
		return l.launchOnRedis(name)
	case merged:
		return l.launchOurs(name, "-store", l.path(name+".db"), "-coalesce")
	case embedded, listing:
		return l.launchOurs(name, "-store", l.path(name+".db"))
	default:
		return nil, fmt.Errorf("there is no server %q", name)
	}
}

// launchOurs starts one of the servers in serve.go.
func (l *lab) launchOurs(name string, args ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := l.processes.startAnnounced(l.ctx, name, nil, self, append([]string{"serve"}, args...)...)
	return &server{process: p}, err
}

func (l *lab) launchOnRedis(name string, args ...string) (*server, error) {
	redis, err := l.server(onRedis)
	if err != nil {
		return nil, err
	}
	s, err := l.launchOurs(name, append([]string{"-store", "redis://" + redis.url}, args...)...)
	if err != nil {
		return nil, err
	}
	s.store = redis.process
	return s, nil
}

// launchBinary starts the program itself, with its default settings but for the store.
func (l *lab) launchBinary(name, store string) (*server, error) {
	binary, err := l.binary()
	if err != nil {
		return nil, err
	}
	p, err := l.processes.startAnnounced(l.ctx, name, nil, binary, "--listen", "127.0.0.1:0", "--store", store)
	return &server{process: p}, err
}

// launchRedis starts a Redis that keeps nothing on the disk.
func (l *lab) launchRedis() (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p, err := l.processes.startListening(l.ctx, onRedis, address, "redis-server", "--bind", host, "--port", port,
		"--dir", l.dir, "--save", "", "--appendonly", "no")
	return &server{process: p}, err
}

// launchWebdis starts webdis, configured as Debian's package does it but for the addresses, the log, and
// that it stays in the foreground.
func (l *lab) launchWebdis() (*server, error) {
	redis, err := l.server(onRedis)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	host, port, _ := strings.Cut(address, ":")
	_, redisPort, _ := strings.Cut(redis.url, ":")
	config := fmt.Sprintf(`{"redis_host": "127.0.0.1", "redis_port": %s, "redis_auth": null,
		"http_host": %q, "http_port": %s, "threads": 2, "daemonize": false, "pidfile": %q, "database": 0,
		"acl": [{"disabled": ["DEBUG"]}], "verbosity": 3, "logfile": %q}`,
		redisPort, host, port, l.path("webdis.pid"), l.path("webdis-own.log"))
	if err := os.WriteFile(l.path("webdis.json"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	p, err := l.processes.startListening(l.ctx, webdis, address, "webdis", l.path("webdis.json"))
	if err != nil {
		return nil, err
	}
	p.url = "http://" + address
	return &server{process: p, store: redis.process}, nil
}

// fill makes sure that a namespace has its users, through a server of ours. They were seen in the last
// ten minutes.
func (l *lab) fill(s *server, namespace string) error {
	key := s.name + " " + namespace
	if s.store != nil {
		key = s.store.name + " " + namespace
	}
	if l.loaded[key] {
		return nil
	}
	l.loaded[key] = true
	ids := l.population(namespace)
	n := ids.len()
	l.logf("%s: loading %d users into %s", s.name, n, namespace)
	at := spreadOut(time.Now(), 10*time.Minute, n)
	switch namespace {
	case tied:
		moment := time.Now().UnixMilli()
		at = func(int) int64 { return moment }
	case spread:
		return ids.loadSpread(l.ctx, s.url, at)
	}
	return ids.load(l.ctx, s.url, namespace, n, at)
}

// population returns the users of a namespace.
func (l *lab) population(namespace string) users {
	switch namespace {
	case few:
		return l.ids[:min(l.users, fewUsers)*idSize]
	case many:
		return newUsers(l.many)
	case numbered:
		return newNumbered(l.users)
	default:
		return l.ids
	}
}

// idsFile returns a file with the users of a namespace, one behind the other.
func (l *lab) idsFile(namespace string) (string, error) {
	name := l.path("ids-" + namespace)
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	return name, os.WriteFile(name, l.population(namespace), 0o600)
}

// serverList is the servers in the order in which they were started.
type serverList struct {
	names []string
	all   map[string]*server
}

func (s *serverList) get(name string) *server { return s.all[name] }

func (s *serverList) add(name string, added *server) {
	if s.all == nil {
		s.all = map[string]*server{}
	}
	s.names = append(s.names, name)
	s.all[name] = added
}

// commands returns how the servers were started.
func (s *serverList) commands() []string {
	var commands []string
	for _, name := range s.names {
		args := s.all[name].cmd.Args
		commands = append(commands, name+": "+commandLine(append([]string{filepath.Base(args[0])}, args[1:]...)))
	}
	return commands
}
