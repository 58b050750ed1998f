package redisstore

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	sampleEvery = 10 * time.Second
	loudOffset  = time.Second // an offset above this is logged
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

// run samples at once and then at every interval, and calls also, until the context ends. While Redis
// is away the last offset stays.
func (c *clock) run(ctx context.Context, every time.Duration, also func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := c.measure(ctx); err != nil && ctx.Err() == nil {
			c.logger.Warn("cannot read Redis' clock", "error", err)
		}
		select {
		case <-ticker.C:
			also()
		case <-ctx.Done():
			return
		}
	}
}

// Now implements [store.Store].
func (s *Store) Now(ctx context.Context) (lastseen.Instant, error) {
	if s.closed.Load() {
		return 0, store.ErrClosed
	}
	return s.clock.read(ctx)
}

// redisTime asks Redis for its time.
func (s *Store) redisTime(ctx context.Context) (time.Time, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer cancel()
	now, err := s.client.Time(ctx).Result()
	return now, translate(err)
}
