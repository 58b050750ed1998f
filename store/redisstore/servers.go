package redisstore

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// ErrTooOld is the error of every call while a Redis is older than 6.2, which has no ZADD GT. It comes with
// [store.ErrUnavailable].
var ErrTooOld = errors.New("redis is too old")

// oldest is the first version that has all commands, major and minor.
var oldest = [2]int{6, 2}

// refusal returns why calls are refused. It checks the servers if that has never been done.
func (s *Store) refusal(ctx context.Context) error {
	var failed error
	if s.status.Load() == nil {
		failed = s.checkServers(ctx)
	}
	if status := s.status.Load(); status != nil {
		return *status
	}
	return translate(failed)
}

// monitor checks the servers again, and tries to write to each: so the client also notices a primary that became a
// replica. It runs once at a time, so that what a slow one found does not replace what was found later.
func (s *Store) monitor(ctx context.Context) {
	s.monitoring.Lock()
	defer s.monitoring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.checkServers(ctx); err == nil {
		_ = s.forEachPrimary(ctx, s.writeNothing)
		_ = s.checkOwnKeys(ctx)
		s.checkFeedRights(ctx)
	}
	s.logReplaced()
}

// checkServers sets the status to that of the servers that could be asked, and returns the error of the others.
func (s *Store) checkServers(ctx context.Context) error {
	var old, failed error
	var evicts atomic.Bool
	reached := false
	check := func(ctx context.Context, client *redis.Client, _ string) error {
		return s.checkServer(ctx, client, &evicts)
	}
	for _, err := range s.forEachPrimary(ctx, check) {
		if err != nil && !errors.Is(err, ErrTooOld) {
			failed = errors.Join(failed, err)
			continue
		}
		old, reached = errors.Join(old, err), true
	}
	if reached {
		s.status.Store(&old)
		s.evicts.Store(evicts.Load())
	}
	return failed
}

// checkServer logs what is wrong with one server, and notes if it may evict any key. The error is ErrTooOld, or why the
// server could not be asked.
func (s *Store) checkServer(ctx context.Context, client *redis.Client, evicts *atomic.Bool) error {
	sections := []string{"server", "memory"}
	if s.guard.replicas > 0 {
		sections = append(sections, "replication")
	}
	info, err := readInfo(ctx, client, sections...)
	if err != nil {
		return err
	}
	if evictsAny(info) {
		evicts.Store(true)
	}
	server := s.nameOf(client)
	mode := cmp.Or(info["redis_mode"], info["server_mode"]) // the latter in Valkey
	if !s.inCluster() && (topology(mode) == cluster || topology(mode) == sentinel) {
		s.log.logOnce(slog.LevelError, topic{server, "mode"}, mode,
			"the store URL has to begin with redis+"+mode+"://", "server", server, "mode", mode)
	}
	s.checkReplicas(server, info)
	return s.log.checkInfo(server, info)
}

// checkReplicas logs that a server has fewer replicas than must confirm writes.
func (s *Store) checkReplicas(server string, info map[string]string) {
	connected, value := info["connected_slaves"], ""
	if n, err := strconv.Atoi(connected); err == nil && n < s.guard.replicas {
		value = connected
	}
	s.log.logOnce(slog.LevelWarn, topic{server, "replicas"}, value,
		"this Redis has fewer replicas than redis-wait asks for: writes fail",
		"server", server, "connected", connected, "redis-wait", s.guard.replicas)
}

// forEachPrimary calls fn concurrently for every server that is written to, with a key that the server owns and that is
// never written. It returns the results of fn, or the error of finding the servers.
func (s *Store) forEachPrimary(
	ctx context.Context, fn func(ctx context.Context, client *redis.Client, key string) error,
) []error {
	keys, err := s.primaries(ctx)
	if err != nil {
		return []error{err}
	}
	results := make(chan error, len(keys))
	for client, key := range keys {
		go func() { results <- fn(ctx, client, key) }()
	}
	errs := make([]error, len(keys))
	for i := range errs {
		errs[i] = <-results
	}
	return errs
}

// keyAttempts is the number of keys tried to find the primaries of a Cluster. A primary with so few slots that none of
// these keys is in them is left out.
const keyAttempts = 4096

// primaries returns the servers that are written to now, each with a key that it owns. In a Cluster it relies on what
// the client knows: asking the Cluster could mean to ask a server that hangs.
func (s *Store) primaries(ctx context.Context) (map[*redis.Client]string, error) {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return map[*redis.Client]string{s.client.(*redis.Client): s.keys.probe()}, nil
	}
	keys := map[*redis.Client]string{}
	for n := range keyAttempts {
		key := s.keys.probe() + ":" + strconv.Itoa(n)
		owner, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		keys[owner] = key
	}
	return keys, nil
}

func (s *Store) nameOf(client *redis.Client) string {
	if s.inCluster() {
		return client.Options().Addr
	}
	return s.url
}

func (s *Store) inCluster() bool {
	_, ok := s.client.(*redis.ClusterClient)
	return ok
}

// readInfo returns sections of a server's INFO; nothing if the user may not ask.
func readInfo(ctx context.Context, client *redis.Client, sections ...string) (map[string]string, error) {
	info := map[string]string{}
	for _, section := range sections { // before version 7 one at a time
		text, err := client.Info(ctx, section).Result()
		reply := replyError(err)
		if err != nil && !strings.HasPrefix(reply, "NOPERM") && !strings.HasPrefix(reply, "unknown command") {
			return nil, err
		}
		for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
				info[name] = value
			}
		}
	}
	return info, nil
}

// evictsAny reports whether a server deletes any key when its memory is full, according to its INFO.
func evictsAny(info map[string]string) bool {
	return strings.HasPrefix(info["maxmemory_policy"], "allkeys-")
}

// checkInfo logs what is wrong with a server according to its INFO, and returns an error if it is too old. Servers
// other than Redis report the version of Redis that they are compatible with.
func (l *onceLogger) checkInfo(server string, info map[string]string) error {
	policy := info["maxmemory_policy"]
	if !evictsAny(info) {
		policy = ""
	}
	l.logOnce(slog.LevelWarn, topic{server, "eviction"}, policy,
		"when its memory is full, this Redis silently drops whole namespaces: set maxmemory-policy to noeviction",
		"server", server, "maxmemory-policy", policy)
	version, about := info["redis_version"], topic{server, "version"}
	old, unknown := olderThan(version, oldest)
	switch {
	case unknown:
		l.logOnce(slog.LevelWarn, about, "unknown: "+version,
			"the version of Redis cannot be read: allow INFO; 6.2 or newer is required",
			"server", server, "version", version)
	case old:
		l.logOnce(slog.LevelError, about, version,
			"this Redis is too old: every call is refused; 6.2 or newer is required",
			"server", server, "version", version)
		return fmt.Errorf("%w: %w: version %s at %s, 6.2 or newer is required",
			store.ErrUnavailable, ErrTooOld, version, server)
	default:
		l.logOnce(slog.LevelInfo, about, "", "")
	}
	return nil
}

// olderThan compares the first two numbers of a version; unknown if it has none.
func olderThan(version string, least [2]int) (older, unknown bool) {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false, true
	}
	return major < least[0] || major == least[0] && minor < least[1], false
}
