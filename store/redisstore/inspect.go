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
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// ErrTooOld is the error of every call while a Redis is older than 6.2, which has no ZADD GT. It comes
// with [store.ErrUnavailable].
var ErrTooOld = errors.New("redis is too old")

// oldest is the first version that has all commands, major and minor.
var oldest = [2]int{6, 2}

// servers is what is known about the Redis servers that are written to.
type servers struct {
	logger *slog.Logger

	mu    sync.Mutex
	known bool               // at least one was inspected
	old   error              // why all calls are refused, if they are
	told  map[finding]string // what was logged, until it changes
}

// finding is one kind of remark on one server.
type finding struct{ server, about string }

// eachPrimary calls fn at once for every server that is written to, with a key that it owns and that
// nobody writes. The error is one of finding them, or those of fn.
func (s *Store) eachPrimary(ctx context.Context, fn func(ctx context.Context, client *redis.Client, key string) error) error {
	keys, err := s.primaries(ctx)
	if err != nil {
		return err
	}
	errs := make(chan error, len(keys))
	for client, key := range keys {
		go func() { errs <- fn(ctx, client, key) }()
	}
	for range keys {
		err = errors.Join(err, <-errs)
	}
	return err
}

// probes is how many keys are tried to find the primaries of a Cluster. One that has so few slots that
// none of them is its own goes by the others.
const probes = 4096

// primaries returns the servers that are written to now, each with a key that it owns. In a Cluster that is
// as far as is known: asking it here could mean to ask the one that hangs.
func (s *Store) primaries(ctx context.Context) (map[*redis.Client]string, error) {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return map[*redis.Client]string{s.client.(*redis.Client): s.keys.probe()}, nil
	}
	keys := map[*redis.Client]string{}
	for n := range probes {
		key := s.keys.probe() + ":" + strconv.Itoa(n)
		owner, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		keys[owner] = key
	}
	return keys, nil
}

// inspected inspects the servers if that has never been done, and returns why calls are refused.
func (s *Store) inspected(ctx context.Context) error {
	known, err := s.servers.verdict()
	if known {
		return err
	}
	failed := s.inspect(ctx)
	if known, err = s.servers.verdict(); !known {
		return translate(failed)
	}
	return err
}

// patrol inspects the servers again and tries to write to each, in the background. What refuses is logged;
// and a primary that became a replica shows, and is left, also when nobody else writes. While Redis is
// away, what was found out holds.
func (s *Store) patrol(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	defer cancel()
	if err := s.inspect(ctx); err == nil {
		_ = s.eachPrimary(ctx, s.writeNothing)
		_ = s.checkOwnKeys(ctx)
	}
}

// inspect reads the version and the settings of every server. The error is that of one which could not
// be asked; others may have been.
func (s *Store) inspect(ctx context.Context) error {
	var mu sync.Mutex
	var old error
	reached := false
	err := s.eachPrimary(ctx, func(ctx context.Context, client *redis.Client, _ string) error {
		info, err := readInfo(ctx, client, "server", "memory")
		if err != nil {
			return err
		}
		tooOld := s.servers.assess(s.nameOf(client), info)
		s.checkMode(client, cmp.Or(info["redis_mode"], info["server_mode"])) // the latter in Valkey
		mu.Lock()
		defer mu.Unlock()
		old, reached = errors.Join(old, tooOld), true
		return nil
	})
	if reached {
		s.servers.conclude(old)
	}
	return err
}

// nameOf returns what a server is called in the log.
func (s *Store) nameOf(client *redis.Client) string {
	if s.inCluster() {
		return client.Options().Addr
	}
	return s.where
}

func (s *Store) inCluster() bool {
	_, ok := s.client.(*redis.ClusterClient)
	return ok
}

// checkMode logs that the URL says less than what it leads to.
func (s *Store) checkMode(client *redis.Client, mode string) {
	if !s.inCluster() && (topology(mode) == cluster || topology(mode) == sentinel) {
		s.servers.tell(slog.LevelError, finding{s.nameOf(client), "mode"}, mode,
			"the store URL has to begin with redis+"+mode+"://", "server", s.nameOf(client), "mode", mode)
	}
}

// readInfo returns sections of what a server says of itself; nothing if it is not allowed to be asked.
func readInfo(ctx context.Context, client *redis.Client, sections ...string) (map[string]string, error) {
	info := map[string]string{}
	for _, section := range sections { // before version 7 one at a time
		text, err := client.Info(ctx, section).Result()
		if reply := said(err); err != nil && !strings.HasPrefix(reply, "NOPERM") && !strings.HasPrefix(reply, "unknown command") {
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

// assess logs what is wrong with a server. The error says that it is too old. Servers that are not Redis
// but speak its language tell the version of Redis that they are like.
func (v *servers) assess(server string, info map[string]string) error {
	version := info["redis_version"]
	old, unknown := olderThan(version, oldest)
	switch {
	case unknown:
		v.tell(slog.LevelWarn, finding{server, "version"}, version,
			"the version of Redis cannot be read: allow INFO; 6.2 or newer is needed", "server", server, "version", version)
	case old:
		v.tell(slog.LevelError, finding{server, "version"}, version,
			"this Redis is too old: every call is refused; 6.2 or newer is needed", "server", server, "version", version)
	default:
		v.forget(finding{server, "version"})
	}
	if policy := info["maxmemory_policy"]; strings.HasPrefix(policy, "allkeys-") {
		v.tell(slog.LevelWarn, finding{server, "eviction"}, policy,
			"when its memory is full, this Redis drops whole namespaces without a word: set maxmemory-policy to noeviction",
			"server", server, "maxmemory-policy", policy)
	} else {
		v.forget(finding{server, "eviction"})
	}
	if !old {
		return nil
	}
	return fmt.Errorf("%w: %w: version %s at %s, 6.2 or newer is needed", store.ErrUnavailable, ErrTooOld, version, server)
}

// olderThan compares the first two numbers of a version; unknown if it has none.
func olderThan(version string, least [2]int) (older, unknown bool) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errMajor := strconv.Atoi(major)
	y, errMinor := strconv.Atoi(minor)
	if errMajor != nil || errMinor != nil {
		return false, true
	}
	return x < least[0] || x == least[0] && y < least[1], false
}

// tell logs a finding once, and again when its value has changed.
func (v *servers) tell(level slog.Level, f finding, value, message string, args ...any) {
	v.mu.Lock()
	before, told := v.told[f]
	if v.told == nil {
		v.told = map[finding]string{}
	}
	v.told[f] = value
	v.mu.Unlock()
	if !told || before != value {
		v.logger.Log(context.Background(), level, message, args...)
	}
}

// forget ends a finding: should it come back, it is logged again.
func (v *servers) forget(f finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.told, f)
}

// conclude keeps the outcome of an inspection.
func (v *servers) conclude(old error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known, v.old = true, old
}

// verdict returns whether any server was inspected, and why calls are refused.
func (v *servers) verdict() (known bool, refused error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known, v.old
}
