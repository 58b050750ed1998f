// Package clock reckons time by a clock that is read only now and then: its last reading plus the monotonic time
// since. A clock that is wrong for a moment, between two readings or for one of them, changes nothing.
package clock

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

const (
	// ReadEvery is the time between two readings.
	ReadEvery = 10 * time.Second
	// confirmAfter is the time after which a reading that differs by more than maxSlew is checked by another one.
	confirmAfter = time.Second
	// maxSlew is the largest difference that is smoothed. A larger one is a step.
	maxSlew = int64(time.Second / time.Microsecond)
)

// Options says what is read. The zero value of a field means its default.
type Options struct {
	Name      string               // of the clock that is read, for the log
	Monotonic func() time.Duration // time since some moment; never set, never backwards; default since New
	Logger    *slog.Logger         // default slog.Default()
}

// Stats describes how a clock behaved.
type Stats struct {
	Steps   int64         // readings that moved the time by more than a second
	Ignored int64         // readings more than a second off that the next one did not confirm
	Offset  time.Duration // how far the last reading was from the time reckoned; positive if ahead of it
}

// Clock reckons time. Times are microseconds: since 1970 for what is reckoned, since any moment for monotonic ones.
type Clock struct {
	name      string
	monotonic func() time.Duration
	logger    *slog.Logger

	mu      sync.Mutex
	set     bool  // there was a reading
	base    int64 // the time at mark
	mark    int64 // monotonic
	slew    int64 // what is added to base little by little from mark on, until ReadEvery after it
	tried   int64 // monotonic time of the last attempt to read
	attempt bool  // there was one
	doubt   doubt
	stats   Stats
}

// doubt is a reading that is to be confirmed by another one.
type doubt struct {
	open   bool
	at     int64 // monotonic
	offset int64 // what the reading would have added to monotonic time
}

// New returns a clock without a reading.
func New(o Options) *Clock {
	c := &Clock{name: o.Name, monotonic: o.Monotonic, logger: o.Logger}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	if c.monotonic == nil {
		start := time.Now()
		c.monotonic = func() time.Duration { return time.Since(start) }
	}
	return c
}

// Now returns the time; false if there was no reading yet. Between steps it neither stands still nor runs backwards.
func (c *Clock) Now() (lastseen.Instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.at(c.monotonic().Microseconds())
	return min(max(lastseen.Instant(at/1000), lastseen.MinInstant), lastseen.MaxInstant), c.set
}

// at returns the time reckoned for a monotonic time.
func (c *Clock) at(monotonic int64) int64 {
	elapsed := monotonic - c.mark
	spread := ReadEvery.Microseconds()
	return c.base + elapsed + c.slew*min(elapsed, spread)/spread
}

// Refresh reads the clock if that is due: the first time, [ReadEvery] after the last attempt, and a second after a
// reading that has to be confirmed. Of several callers one reads.
func (c *Clock) Refresh(read func() (time.Time, error)) error {
	if !c.due() {
		return nil
	}
	return c.Read(read)
}

// Read reads the clock. Its error is that of the reading, which then changes nothing.
func (c *Clock) Read(read func() (time.Time, error)) error {
	sent := c.monotonic()
	reading, err := read()
	if err == nil {
		c.Set(reading, sent, c.monotonic())
	}
	return err
}

// due reports whether the clock is to be read. If so that counts as an attempt.
func (c *Clock) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wait := c.monotonic().Microseconds(), ReadEvery
	if c.doubt.open {
		wait = confirmAfter
	}
	if c.attempt && now-c.tried < wait.Microseconds() {
		return false
	}
	c.attempt, c.tried = true, now
	return true
}

// Stats returns how the clock behaved so far.
func (c *Clock) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Set takes a reading that was asked for and received at two monotonic times. The clock was read at some moment
// between them: what differs by less than that uncertainty does not count.
//
// A difference of up to a second is spread over the time until the next reading, less the uncertainty. A larger one
// counts, forward or back, once a second reading has confirmed it, at least a second later.
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
	c.stats.Offset = duration(difference)
	switch {
	case -maxSlew <= difference && difference <= maxSlew:
		c.dismiss()
		c.base, c.mark, c.slew = c.at(now), now, difference
	case c.confirmed(read, offset, received-sent):
		c.doubt = doubt{}
		c.base, c.mark, c.slew = offset+now, now, 0
		c.stats.Steps++
		c.logger.Warn("the clock was set; times follow it", "clock", c.name, "by", duration(difference).String(), "steps", c.stats.Steps)
	case !c.doubt.open || c.doubt.at+confirmAfter.Microseconds() <= read:
		c.dismiss()
		c.doubt = doubt{open: true, at: read, offset: offset}
	}
}

// confirmed reports whether a reading agrees with the one in doubt, and came long enough after it.
func (c *Clock) confirmed(read, offset int64, roundTrip time.Duration) bool {
	apart := certain(offset-c.doubt.offset, roundTrip.Microseconds())
	return c.doubt.open && read-c.doubt.at >= confirmAfter.Microseconds() && -maxSlew <= apart && apart <= maxSlew
}

// dismiss drops the reading in doubt, if there is one.
func (c *Clock) dismiss() {
	if !c.doubt.open {
		return
	}
	off := duration(c.doubt.offset + c.doubt.at - c.at(c.doubt.at))
	c.doubt = doubt{}
	c.stats.Ignored++
	c.logger.Warn("the clock was wrong for a moment; times did not follow it", "clock", c.name, "by", off.String(), "ignored", c.stats.Ignored)
}

// certain returns what of a difference is beyond an uncertainty.
func certain(difference, uncertainty int64) int64 {
	if difference > 0 {
		return max(0, difference-uncertainty)
	}
	return min(0, difference+uncertainty)
}

// duration returns microseconds as a duration, the longest one if there are too many.
func duration(us int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(us, -longest), longest)) * time.Microsecond
}
