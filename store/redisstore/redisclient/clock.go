package redisclient

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

const (
	// ClockEvery is how often [Clock.Refresh] is to be called, which finds out whether a reading is due.
	ClockEvery = time.Second
	loudOffset = time.Second // an offset above this is logged

	// ReadClockEvery is how often Redis' clock is read.
	ReadClockEvery = clock.ReadEvery
)

// ClockStats describes a [Clock].
type ClockStats = clock.Stats

// Clock computes Redis' time. All servers on one Redis share it, so that their pings are comparable.
type Clock struct {
	*clock.Clock
	local  func() time.Time
	sample func(context.Context) (time.Time, error)
	log    *OnceLogger
	offset atomic.Int64 // at the last reading: Redis' clock less this machine's, a time.Duration
}

// Read returns the time. Before the first reading it has to ask Redis, and fails if that fails.
func (c *Clock) Read(ctx context.Context) (lastseen.Instant, error) {
	at, known := c.Now()
	if known {
		return at, nil
	}
	if err := c.Clock.Read(func() (time.Time, error) { return c.sample(ctx) }); err != nil {
		return 0, err
	}
	at, _ = c.Now()
	return at, nil
}

// Refresh samples Redis' clock when a reading is due. While Redis is away, monotonic time goes on. Failures are logged
// once per outage, and a difference to this machine's clock once until they agree again.
func (c *Clock) Refresh(ctx context.Context) {
	_ = c.Clock.Refresh(func() (time.Time, error) {
		sent := c.local()
		theirs, err := c.sample(ctx)
		if ctx.Err() != nil {
			return theirs, err
		}
		offset := theirs.Sub(sent.Add(c.local().Sub(sent) / 2))
		c.log.LogIf(err != nil, slog.LevelWarn, "clock", "failure", "cannot read Redis' clock", "error", err)
		if err == nil {
			c.offset.Store(int64(offset))
			c.log.LogIf(offset.Abs() > loudOffset, slog.LevelWarn, "clock", "offset",
				"this machine's clock differs from Redis' clock; pings are stamped with Redis' time",
				"offset", offset.Round(time.Millisecond).String())
		}
		return theirs, err
	})
}

// Offset returns Redis' clock less this machine's clock, at the last reading; 0 before the first one.
func (c *Clock) Offset() time.Duration { return time.Duration(c.offset.Load()) }

// readTime reads the clock of the Redis that has a key, so that all servers read the same one.
func (c *Client) readTime(ctx context.Context, key string) (time.Time, error) {
	ctx, cancel, err := c.Begin(ctx, c.Timeout)
	if err != nil {
		return time.Time{}, err
	}
	defer cancel()
	replies, err := c.RunInts(ctx, 2, Call{Script: scripts.Time, Key: key})
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(replies[0][0], replies[0][1]*int64(time.Microsecond)), nil
}
