package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	sampleEvery = 10 * time.Second // also how often servers are inspected, and namespaces checked again
	loudOffset  = time.Second      // an offset above this is logged
)

// clock tells Redis' time: the local clock plus an offset that is sampled now and then. All servers
// on one Redis share it, so their pings compare. It never runs backwards.
type clock struct {
	now    func() time.Time
	sample func(context.Context) (time.Time, error)
	logger *slog.Logger

	mu      sync.Mutex
	sampled bool
	offset  time.Duration
	latest  lastseen.Instant
}

// read returns the time. The first reading has to ask Redis, and fails if that fails.
func (c *clock) read(ctx context.Context) (lastseen.Instant, error) {
	c.mu.Lock()
	sampled := c.sampled
	c.mu.Unlock()
	if !sampled {
		if err := c.measure(ctx); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = max(c.latest, lastseen.InstantOf(c.now().Add(c.offset)))
	return c.latest, nil
}

// measure samples Redis' clock, taking it to have read the time half way through the call.
func (c *clock) measure(ctx context.Context) error {
	sent := c.now()
	theirs, err := c.sample(ctx)
	if err != nil {
		return err
	}
	received := c.now()
	offset := theirs.Sub(sent.Add(received.Sub(sent) / 2))
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset.Abs() > loudOffset && (!c.sampled || c.offset.Abs() <= loudOffset) {
		c.logger.Warn("this machine's clock differs from Redis' clock; pings are stamped with Redis' time",
			"offset", offset.Round(time.Millisecond).String())
	}
	c.offset, c.sampled = offset, true
	return nil
}

// refresh samples Redis' clock. While Redis is away the last offset stays.
func (c *clock) refresh(ctx context.Context) {
	if err := c.measure(ctx); err != nil && ctx.Err() == nil {
		c.logger.Warn("cannot read Redis' clock", "error", err)
	}
}

// Now implements [store.Store].
func (s *Store) Now(ctx context.Context) (lastseen.Instant, error) {
	if s.closed.Load() {
		return 0, store.ErrClosed
	}
	return s.clock.read(ctx)
}

// redisTime asks the Redis that has the list of namespaces for its time, also in a Cluster, so that all
// servers ask the same one: its clock is theirs.
func (s *Store) redisTime(ctx context.Context) (time.Time, error) {
	cmds, err := s.runScript(ctx, scripts.time, []call{{key: s.keys.registry()}})
	if err != nil {
		return time.Time{}, err
	}
	parts, err := cmds[0].Int64Slice()
	if err != nil || len(parts) != 2 {
		return time.Time{}, fmt.Errorf("script answered %v for a time: %w", cmds[0].Val(), err)
	}
	return time.Unix(parts[0], parts[1]*int64(time.Microsecond)), nil
}
