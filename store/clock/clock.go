// Package clock computes the time from occasional readings of a clock: the last reading plus the monotonic time since.
// A clock that is wrong for a moment, between two readings or during one, changes nothing.
package clock

import (
	"cmp"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

const (
	// ReadEvery is the time between two readings.
	ReadEvery = 10 * time.Second
	// confirmAfter is the time after which a second reading checks one that differs by more than maxSlew.
	confirmAfter = time.Second
	// maxSlew is the largest difference that is smoothed. A larger one is a step.
	maxSlew = int64(time.Second / time.Microsecond)
)

// Options configures a clock.
type Options struct {
	Name      string               // of the clock that is read, for the log
	Monotonic func() time.Duration // time since some moment, which never runs backwards; required
	Logger    *slog.Logger         // default slog.Default()
}

// Stats describes the readings of a clock.
type Stats struct {
	Steps   int64 // readings that moved the time by more than a second
	Ignored int64 // readings more than a second off that the next one did not confirm
}

// Clock computes the time. Its fields are microseconds: since 1970, or since some moment for monotonic times.
type Clock struct {
	name      string
	monotonic func() time.Duration
	logger    *slog.Logger

	mu          sync.Mutex
	set         bool  // there has been a reading
	base        int64 // the time at mark
	mark        int64 // monotonic
	slew        int64 // added to base gradually, from mark until ReadEvery after it
	tried       int64 // monotonic time of the last attempt to read
	attempt     bool  // there has been one
	unconfirmed unconfirmedStep
	stats       Stats
}

// unconfirmedStep is a reading that another one has to confirm.
type unconfirmedStep struct {
	open   bool
	at     int64 // monotonic
	offset int64 // the reading less the monotonic time
}

// New returns a clock without a reading.
func New(o Options) *Clock {
	return &Clock{name: o.Name, monotonic: o.Monotonic, logger: cmp.Or(o.Logger, slog.Default())}
}

// Now returns the time; false if there was no reading yet. Between steps, time always moves forward.
func (c *Clock) Now() (lastseen.Instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.at(c.monotonic().Microseconds())
	return min(max(lastseen.Instant(at/1000), lastseen.MinInstant), lastseen.MaxInstant), c.set
}

// at returns the computed time at a monotonic time.
func (c *Clock) at(monotonic int64) int64 {
	elapsed := monotonic - c.mark
	spread := ReadEvery.Microseconds()
	return c.base + elapsed + c.slew*min(elapsed, spread)/spread
}

// Refresh reads the clock if a reading is due: the first one, [ReadEvery] after the last attempt, or a second after a
// reading that has to be confirmed. Of several concurrent callers, one reads.
func (c *Clock) Refresh(read func() (time.Time, error)) error {
	if !c.due() {
		return nil
	}
	return c.Read(read)
}

// Read reads the clock. A reading that fails changes nothing, and its error is returned.
func (c *Clock) Read(read func() (time.Time, error)) error {
	sent := c.monotonic()
	reading, err := read()
	if err == nil {
		c.Set(reading, sent, c.monotonic())
	}
	return err
}

// due reports whether a reading is due, and counts it as an attempt.
func (c *Clock) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wait := c.monotonic().Microseconds(), ReadEvery
	if c.unconfirmed.open {
		wait = confirmAfter
	}
	if c.attempt && now-c.tried < wait.Microseconds() {
		return false
	}
	c.attempt, c.tried = true, now
	return true
}

// Stats returns the statistics since New.
func (c *Clock) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Set applies a reading that was requested and received at the given monotonic times. The clock was read at some moment
// between them, so a difference within that uncertainty is ignored. For larger
// ones, see Clock of package store.
func (c *Clock) Set(reading time.Time, sent, received time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, read := c.monotonic().Microseconds(), (sent + (received-sent)/2).Microseconds()
	c.attempt, c.tried = true, now
	offset := reading.UnixMicro() - read
	if !c.set {
		c.set, c.base, c.mark = true, offset+now, now
		return
	}
	difference := certain(offset+read-c.at(read), ((received - sent) / 2).Microseconds())
	switch {
	case -maxSlew <= difference && difference <= maxSlew:
		c.dismiss()
		c.base, c.mark, c.slew = c.at(now), now, difference
	case c.confirmed(read, offset, received-sent):
		c.unconfirmed = unconfirmedStep{}
		c.base, c.mark, c.slew = offset+now, now, 0
		c.stats.Steps++
		c.logger.Warn("the clock was set; times follow it",
			"clock", c.name, "by", duration(difference).String(), "steps", c.stats.Steps)
	case !c.unconfirmed.open || c.unconfirmed.at+confirmAfter.Microseconds() <= read:
		c.dismiss()
		c.unconfirmed = unconfirmedStep{open: true, at: read, offset: offset}
	}
}

// confirmed reports whether a reading agrees with the unconfirmed one and was taken long enough after it.
func (c *Clock) confirmed(read, offset int64, roundTrip time.Duration) bool {
	step, apart := c.unconfirmed, certain(offset-c.unconfirmed.offset, roundTrip.Microseconds())
	return step.open && read-step.at >= confirmAfter.Microseconds() && -maxSlew <= apart && apart <= maxSlew
}

// dismiss drops the unconfirmed reading, if there is one.
func (c *Clock) dismiss() {
	if !c.unconfirmed.open {
		return
	}
	off := duration(c.unconfirmed.offset + c.unconfirmed.at - c.at(c.unconfirmed.at))
	c.unconfirmed = unconfirmedStep{}
	c.stats.Ignored++
	c.logger.Warn("the clock was wrong for a moment; times did not follow it",
		"clock", c.name, "by", off.String(), "ignored", c.stats.Ignored)
}

// certain returns the part of a difference that exceeds an uncertainty.
func certain(difference, uncertainty int64) int64 {
	if difference > 0 {
		return max(0, difference-uncertainty)
	}
	return min(0, difference+uncertainty)
}

// duration converts microseconds, saturating at the longest duration.
func duration(us int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(us, -longest), longest)) * time.Microsecond
}
