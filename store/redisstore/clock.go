package redisstore

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

const (
	sampleEvery = clock.ReadEvery // also how often servers and namespaces are checked again
	lookEvery   = time.Second     // how often the clock is asked whether a reading is due
	loudOffset  = time.Second     // an offset above this is logged
)

// sampledClock computes Redis' time. All servers on one Redis share it, so that their pings are comparable.
type sampledClock struct {
	*clock.Clock
	local  func() time.Time
	sample func(context.Context) (time.Time, error)
	log    *onceLogger
	offset atomic.Int64 // at the last reading: Redis' clock less this machine's, a time.Duration
}

// read returns the time. Before the first reading it has to ask Redis, and fails if that fails.
func (c *sampledClock) read(ctx context.Context) (lastseen.Instant, error) {
	at, known := c.Now()
	if known {
		return at, nil
	}
	if err := c.Read(func() (time.Time, error) { return c.sample(ctx) }); err != nil {
		return 0, err
	}
	at, _ = c.Now()
	return at, nil
}

// refresh samples Redis' clock when a reading is due. While Redis is away, monotonic time goes on. Failures are logged
// once per outage, and a difference to this machine's clock once until they agree again.
func (c *sampledClock) refresh(ctx context.Context) {
	_ = c.Refresh(func() (time.Time, error) {
		sent := c.local()
		theirs, err := c.sample(ctx)
		if ctx.Err() != nil {
			return theirs, err
		}
		failure, difference := "", ""
		offset := theirs.Sub(sent.Add(c.local().Sub(sent) / 2))
		if err != nil {
			failure = "failed"
		} else {
			c.offset.Store(int64(offset))
			if offset.Abs() > loudOffset {
				difference = "differs"
			}
		}
		c.log.logOnce(slog.LevelWarn, topic{"clock", "failure"}, failure, "cannot read Redis' clock", "error", err)
		if err == nil {
			c.log.logOnce(slog.LevelWarn, topic{"clock", "offset"}, difference,
				"this machine's clock differs from Redis' clock; pings are stamped with Redis' time",
				"offset", offset.Round(time.Millisecond).String())
		}
		return theirs, err
	})
}

// Now implements [store.Store].
func (s *Store) Now(ctx context.Context) (lastseen.Instant, error) {
	if s.closed.Load() {
		return 0, store.ErrClosed
	}
	return s.clock.read(ctx)
}

// ClockOffset returns Redis' clock less this machine's clock, at the last reading; 0 before the first one.
func (s *Store) ClockOffset() time.Duration { return time.Duration(s.clock.offset.Load()) }

// ClockStats returns statistics of Redis' clock since Open.
func (s *Store) ClockStats() clock.Stats { return s.clock.Stats() }

// logReplaced logs how many times Redis replaced by its own since the last call.
func (s *Store) logReplaced() {
	if n := s.replaced.Swap(0); n > 0 {
		s.log.Warn("times ahead of the clock of the Redis that records them were replaced by its time; in a Cluster, "+
			"the clocks of all servers have to agree", "times", n, "allowed", store.MaxAhead.String())
	}
}

// redisTime reads the clock of the Redis that has the list of namespaces, so that all servers read the same one.
func (s *Store) redisTime(ctx context.Context) (time.Time, error) {
	ctx, cancel, err := s.begin(ctx, s.timeout)
	if err != nil {
		return time.Time{}, err
	}
	defer cancel()
	replies, err := s.runInts(ctx, scripts.Time, 2, call{key: s.keys.registry()})
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(replies[0][0], replies[0][1]*int64(time.Microsecond)), nil
}
