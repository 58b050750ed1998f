package redisclient

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
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// ErrTooOld is the error of every call while a Redis is older than 6.2, which has no ZADD GT. It comes with
// [store.ErrUnavailable].
var ErrTooOld = errors.New("redis is too old")

// refusal returns why calls are refused. It checks the servers if that has never been done.
func (c *Client) refusal(ctx context.Context) error {
	var failed error
	if c.status.Load() == nil {
		failed = c.checkServers(ctx)
	}
	if status := c.status.Load(); status != nil {
		return *status
	}
	return Translate(failed)
}

// Check checks the servers again, and tries to write to each: so the client also notices a primary that became a
// replica. The error is why not all servers could be asked.
func (c *Client) Check(ctx context.Context) error {
	err := c.checkServers(ctx)
	if err == nil {
		_ = c.TryWriting(ctx)
	}
	return err
}

// Evicts reports whether a server may evict any key when its memory is full.
func (c *Client) Evicts() bool { return c.evicts.Load() }

// checkServers sets the status to that of the servers that could be asked, and returns the error of the others.
func (c *Client) checkServers(ctx context.Context) error {
	var old, failed error
	var evicts atomic.Bool
	reached := false
	check := func(ctx context.Context, client *redis.Client, _ string) error {
		return c.checkServer(ctx, client, &evicts)
	}
	for _, err := range c.ForEachPrimary(ctx, check) {
		if err != nil && !errors.Is(err, ErrTooOld) {
			failed = errors.Join(failed, err)
			continue
		}
		old, reached = errors.Join(old, err), true
	}
	if reached {
		c.status.Store(&old)
		c.evicts.Store(evicts.Load())
	}
	return failed
}

// checkServer logs what is wrong with one server, and notes if it may evict any key. The error is ErrTooOld, or why the
// server could not be asked.
func (c *Client) checkServer(ctx context.Context, client *redis.Client, evicts *atomic.Bool) error {
	sections := []string{"server", "memory"}
	if c.guard.replicas > 0 {
		sections = append(sections, "replication")
	}
	info, err := ReadInfo(ctx, client, sections...)
	if err != nil {
		return err
	}
	if evictsAny(info) {
		evicts.Store(true)
	}
	server := c.nameOf(client)
	mode := cmp.Or(info["redis_mode"], info["server_mode"]) // the latter in Valkey
	if !c.InCluster() && (topology(mode) == cluster || topology(mode) == sentinel) {
		c.Log.LogOnce(slog.LevelError, server, "mode", mode,
			"the store URL has to begin with redis+"+mode+"://", "server", server, "mode", mode)
	}
	c.checkReplicas(server, info)
	return c.Log.checkInfo(server, info)
}

// checkReplicas logs that a server has fewer replicas than must confirm writes.
func (c *Client) checkReplicas(server string, info map[string]string) {
	connected, value := info["connected_slaves"], ""
	if n, err := strconv.Atoi(connected); err == nil && n < c.guard.replicas {
		value = connected
	}
	c.Log.LogOnce(slog.LevelWarn, server, "replicas", value,
		"this Redis has fewer replicas than redis-wait asks for: writes fail",
		"server", server, "connected", connected, "redis-wait", c.guard.replicas)
}

// ForEachPrimary calls fn concurrently for every server that is written to, with a key that the server owns and that is
// never written. It returns the results of fn, or the error of finding the servers.
func (c *Client) ForEachPrimary(
	ctx context.Context, fn func(ctx context.Context, client *redis.Client, key string) error,
) []error {
	keys, err := c.primaries(ctx)
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
func (c *Client) primaries(ctx context.Context) (map[*redis.Client]string, error) {
	cluster, ok := c.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return map[*redis.Client]string{c.UniversalClient.(*redis.Client): c.probeKey}, nil
	}
	keys := map[*redis.Client]string{}
	for n := range keyAttempts {
		key := c.probeKey + ":" + strconv.Itoa(n)
		owner, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		keys[owner] = key
	}
	return keys, nil
}

func (c *Client) nameOf(client *redis.Client) string {
	if c.InCluster() {
		return client.Options().Addr
	}
	return c.Name
}

// InCluster reports whether Redis is a Cluster.
func (c *Client) InCluster() bool {
	_, ok := c.UniversalClient.(*redis.ClusterClient)
	return ok
}

// ReadInfo returns sections of a server's INFO; nothing if the user may not ask.
func ReadInfo(ctx context.Context, client *redis.Client, sections ...string) (map[string]string, error) {
	info := map[string]string{}
	for _, section := range sections { // before version 7 one at a time
		text, err := client.Info(ctx, section).Result()
		reply := ReplyError(err)
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
func (l *OnceLogger) checkInfo(server string, info map[string]string) error {
	policy := info["maxmemory_policy"]
	if !evictsAny(info) {
		policy = ""
	}
	l.LogOnce(slog.LevelWarn, server, "eviction", policy,
		"when its memory is full, this Redis silently drops whole namespaces: set maxmemory-policy to noeviction",
		"server", server, "maxmemory-policy", policy)
	version := info["redis_version"]
	old, unknown := tooOld(version)
	switch {
	case unknown:
		l.LogOnce(slog.LevelWarn, server, "version", "unknown: "+version,
			"the version of Redis cannot be read: allow INFO; 6.2 or newer is required",
			"server", server, "version", version)
	case old:
		l.LogOnce(slog.LevelError, server, "version", version,
			"this Redis is too old: every call is refused; 6.2 or newer is required",
			"server", server, "version", version)
		return fmt.Errorf("%w: %w: version %s at %s, 6.2 or newer is required",
			store.ErrUnavailable, ErrTooOld, version, server)
	default:
		l.LogOnce(slog.LevelInfo, server, "version", "", "")
	}
	return nil
}

// tooOld reports whether a version lacks commands, by its first two numbers; unknown if it has none.
func tooOld(version string) (old, unknown bool) {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false, true
	}
	return major < 6 || major == 6 && minor < 2, false
}

// TryWriting does a write that changes nothing on each primary, and returns an error for each. It is nil if the write
// succeeded and would not be lost.
func (c *Client) TryWriting(ctx context.Context) []error {
	return c.ForEachPrimary(ctx, c.writeNothing)
}

// writeNothing does a write that changes nothing, and returns an error if that fails or would be lost.
func (c *Client) writeNothing(ctx context.Context, client *redis.Client, key string) error {
	err := Translate(scripts.Probe.Run(Confirmed(ctx), client, []string{key}).Err())
	if err == nil {
		err = checkPrimary(ctx, client)
	}
	if errors.Is(err, context.Canceled) { // by the caller or by Close, which says nothing about the server
		return err
	}
	value, message := "", "this Redis takes no writes"
	switch {
	case errors.Is(err, errReplica) || strings.HasPrefix(ReplyError(err), "READONLY"):
		value, message = "replica", "this Redis is a replica: it takes no writes, and its replies may be old"
	case err != nil:
		value = "refused"
	}
	server := c.nameOf(client)
	c.Log.LogOnce(slog.LevelWarn, server, "ready", value, message, "server", server, "error", err)
	return err
}

// errReplica is the error of a replica that accepts writes.
var errReplica = errors.New("redis is a replica: what is written to it is lost")

// checkPrimary returns an error if a server is a replica, or cannot be asked. If the user may not ask, it is taken to
// be a primary.
func checkPrimary(ctx context.Context, client *redis.Client) error {
	info, err := ReadInfo(ctx, client, "replication")
	if err == nil && info["role"] == "slave" {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, errReplica)
	}
	return Translate(err)
}
