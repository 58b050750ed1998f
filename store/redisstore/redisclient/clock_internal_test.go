package redisclient

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
)

const clockBegin lastseen.Instant = 1_700_000_000_000

// fakeTime is three clocks that a test sets: monotonic time, this machine's clock and Redis', the latter two each
// ahead of monotonic time by so much. Each reading of Redis' clock takes a round trip.
type fakeTime struct {
	monotonic    time.Duration
	local, redis time.Duration
	roundTrip    time.Duration
	down         bool
}

func (f *fakeTime) at(ahead time.Duration) time.Time {
	return time.UnixMilli(int64(clockBegin)).Add(f.monotonic + ahead)
}

func (f *fakeTime) sample(context.Context) (time.Time, error) {
	if f.down {
		return time.Time{}, store.ErrUnavailable
	}
	f.monotonic += f.roundTrip / 2
	theirs := f.at(f.redis)
	f.monotonic += f.roundTrip / 2
	return theirs, nil
}

func (f *fakeTime) clock(log *bytes.Buffer) *Clock {
	logger := slog.New(slog.NewTextHandler(log, nil))
	monotonic := func() time.Duration { return f.monotonic }
	return &Clock{
		Clock: clock.New(clock.Options{Name: "Redis", Monotonic: monotonic, Logger: logger}),
		local: func() time.Time { return f.at(f.local) }, sample: f.sample, log: &OnceLogger{Logger: logger},
	}
}

// pass lets time pass, in which the background looks after the clock.
func (f *fakeTime) pass(c *Clock, d time.Duration) {
	for end := f.monotonic + d; f.monotonic < end; f.monotonic += ClockEvery {
		c.Refresh(context.Background())
	}
}

// TestClock: the first reading has to ask Redis; later ones do not, also while Redis is away, and whatever this
// machine's clock shows.
func TestClock(t *testing.T) {
	ctx, log := context.Background(), bytes.Buffer{}
	f := &fakeTime{redis: 5 * time.Second, roundTrip: 200 * time.Millisecond, down: true}
	c := f.clock(&log)
	_, err := c.Read(ctx)
	require.ErrorIs(t, err, store.ErrUnavailable)
	f.down = false
	requireRedisTime := func() {
		t.Helper()
		now, err := c.Read(ctx)
		require.NoError(t, err)
		require.Equal(t, clockBegin.Add(f.monotonic+f.redis), now)
	}
	requireRedisTime()
	f.pass(c, time.Minute)
	requireRedisTime()
	require.Equal(t, 1, strings.Count(log.String(), "this machine's clock differs"), "once")

	f.down = true
	f.pass(c, time.Hour)
	requireRedisTime()
	require.Equal(t, 1, strings.Count(log.String(), "cannot read Redis' clock"), "once an outage")
	f.down = false
	for _, local := range []time.Duration{5 * time.Second, 1000 * time.Hour, -30 * 365 * 24 * time.Hour} {
		f.local = local
		f.pass(c, time.Minute)
		requireRedisTime()
	}
	require.Equal(t, 2, strings.Count(log.String(), "this machine's clock differs"), "it came back")
	require.Zero(t, c.Stats().Steps)
	f.down = true
	f.pass(c, time.Minute)
	require.Equal(t, 2, strings.Count(log.String(), "cannot read Redis' clock"), "the next outage")
	f.down = false

	f.redis = -time.Hour // as after a failover to another machine
	f.pass(c, clock.ReadEvery+2*time.Second)
	requireRedisTime()
	require.EqualValues(t, 1, c.Stats().Steps)
}
