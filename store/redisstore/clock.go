package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
)

const (
	sampleEvery = clock.ReadEvery // also how often servers are inspected, and namespaces checked again
	lookEvery   = time.Second     // how often the clock is asked whether it is to be read
	loudOffset  = time.Second     // an offset above this is logged
)

// sampledClock reckons Redis' time. All servers on one Redis share it, so their pings compare.
type sampledClock struct {
	*clock.Clock
	local  func() time.Time
	sample func(context.Context) (time.Time, error)
	logger *slog.Logger

	// Only the background reads and writes these.
	loud   bool // the last offset was above loudOffset
	failed bool // the last reading failed
}

// read returns the time. Until there is a first reading it has to ask Redis, and fails if that fails.
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

// refresh samples Redis' clock when it is time. While Redis is away, monotonic time goes on.
func (c *sampledClock) refresh(ctx context.Context) {
	err := c.Refresh(func() (time.Time, error) {
		sent := c.local()
		theirs, err := c.sample(ctx)
		if err == nil {
			c.failed = false
			c.compare(theirs.Sub(sent.Add(c.local().Sub(sent) / 2)))
		}
		return theirs, err
	})
	if err != nil && ctx.Err() == nil && !c.failed {
		c.failed = true // logged once an outage, not at each try
		c.logger.Warn("cannot read Redis' clock", "error", err)
	}
}

// compare logs that Redis' clock is not that of this machine, once while it is so.
func (c *sampledClock) compare(offset time.Duration) {
	loud := offset.Abs() > loudOffset
	if loud && !c.loud {
		c.logger.Warn("this machine's clock differs from Redis' clock; pings are stamped with Redis' time",
			"offset", offset.Round(time.Millisecond).String())
	}
	c.loud = loud
}

// Now implements [store.Store].
func (s *Store) Now(ctx context.Context) (lastseen.Instant, error) {
	if s.closed.Load() {
		return 0, store.ErrClosed
	}
	return s.clock.read(ctx)
}

// ClockStats returns how Redis' clock behaved so far.
func (s *Store) ClockStats() clock.Stats { return s.clock.Stats() }

// reportReplaced logs how many times Redis did not take since that was last asked.
func (s *Store) reportReplaced() {
	if n := s.replaced.Swap(0); n > 0 {
		s.logger.Warn("times ahead of the clock of the Redis that records them were replaced by its time; in a Cluster, "+
			"the clocks of all servers have to agree", "times", n, "allowed", store.MaxAhead.String())
	}
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
