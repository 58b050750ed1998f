package clock

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
)

const begin = 1_795_212_000_000 // milliseconds since 1970

// bench simulates the two clocks that a Clock uses.
type bench struct {
	*Clock
	t         require.TestingT
	monotonic time.Duration
	wrong     time.Duration // how far the clock that is read is off
	log       bytes.Buffer
}

func newBench(t require.TestingT) *bench {
	b := &bench{t: t, monotonic: time.Hour}
	b.Clock = New(Options{
		Name: "test", Monotonic: func() time.Duration { return b.monotonic },
		Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	return b
}

// right is the true time.
func (b *bench) right() time.Time { return time.UnixMilli(begin).Add(b.monotonic) }

// read takes a reading with a round trip of the given time, at whose middle the clock is read.
func (b *bench) read(roundTrip time.Duration) {
	b.readAt(roundTrip, roundTrip/2)
}

func (b *bench) readAt(roundTrip, at time.Duration) {
	sent := b.monotonic
	reading := b.right().Add(at + b.wrong)
	b.monotonic += roundTrip
	b.Set(reading, sent, b.monotonic)
}

// pass lets time pass, with the readings that are due.
func (b *bench) pass(d time.Duration) {
	for end := b.monotonic + d; b.monotonic < end; b.monotonic += 100 * time.Millisecond {
		require.NoError(b.t, b.Refresh(func() (time.Time, error) { return b.right().Add(b.wrong), nil }))
	}
}

// off is how far the time reckoned is from the true time.
func (b *bench) off() time.Duration {
	at, set := b.Now()
	require.True(b.t, set)
	return time.Duration(at-lastseen.InstantOf(b.right())) * time.Millisecond
}

func TestNothingWithoutAReading(t *testing.T) {
	b := newBench(t)
	_, set := b.Now()
	require.False(t, set)
	down, asked := errors.New("down"), 0
	fail := func() (time.Time, error) { asked++; return time.Time{}, down }
	require.ErrorIs(t, b.Refresh(fail), down)
	require.NoError(t, b.Refresh(fail), "an attempt counts, also one that failed")
	require.Equal(t, 1, asked)
	b.monotonic += ReadEvery
	require.ErrorIs(t, b.Refresh(fail), down)
	_, set = b.Now()
	require.False(t, set)
	b.wrong = -40 * 365 * 24 * time.Hour
	b.read(0)
	require.Equal(t, b.wrong, b.off(), "the first reading counts at once")
	require.Zero(t, b.Stats().Steps)
}

// TestWrongForAMoment: a clock that is wrong for less than a second changes nothing, whenever that is.
func TestWrongForAMoment(t *testing.T) {
	const hours, years = 1000 * time.Hour, 30 * 365 * 24 * time.Hour
	for _, wrong := range []time.Duration{hours, -hours, years, -years, 2 * time.Second} {
		for after := time.Duration(0); after <= 2*ReadEvery; after += 100 * time.Millisecond {
			b := newBench(t)
			b.read(0)
			b.pass(after)
			b.wrong = wrong
			for range 5 {
				b.pass(100 * time.Millisecond)
				require.Zero(t, b.off(), "%s off after %s", wrong, after)
			}
			b.wrong = 0
			for range 300 {
				b.pass(100 * time.Millisecond)
				require.Zero(t, b.off(), "%s off after %s, and right again", wrong, after)
			}
			require.Zero(t, b.Stats().Steps)
			require.EqualValues(t, strings.Count(b.log.String(), "wrong for a moment"), b.Stats().Ignored)
		}
	}
}

// TestStep: a clock that stays different counts, forward or back, a second after it was first read.
func TestStep(t *testing.T) {
	const hours, years, second = 1000 * time.Hour, 30 * 365 * 24 * time.Hour, 1100 * time.Millisecond
	for _, wrong := range []time.Duration{hours, -hours, years, -years, second, -second} {
		b := newBench(t)
		b.read(0)
		b.pass(ReadEvery)
		b.wrong = wrong
		b.pass(confirmAfter)
		require.Zero(t, b.off())
		b.pass(200 * time.Millisecond)
		require.Equal(t, wrong, b.off())
		b.pass(time.Minute)
		require.Equal(t, wrong, b.off())
		require.Equal(t, Stats{Steps: 1}, b.Stats())
		require.Equal(t, 1, strings.Count(b.log.String(), "the clock was set"), b.log.String())
		require.Contains(t, b.log.String(), "by="+wrong.String())

		b.wrong = 0
		b.pass(ReadEvery + 2*confirmAfter)
		require.Zero(t, b.off(), "and back")
		require.EqualValues(t, 2, b.Stats().Steps)
	}
}

// TestRestless: as long as no reading confirms the one before, monotonic time counts.
func TestRestless(t *testing.T) {
	b := newBench(t)
	b.read(0)
	for n := range 60 {
		b.wrong = time.Duration(n%7+1) * time.Hour
		b.pass(confirmAfter)
		require.Zero(t, b.off())
	}
	b.wrong = 1000 * time.Hour
	b.read(0)
	b.read(0)
	require.Zero(t, b.off(), "two readings at once confirm nothing")
}

// TestSmall: a small difference is spread over the time until the next reading.
func TestSmall(t *testing.T) {
	for _, wrong := range []time.Duration{time.Second, -time.Second, 10 * time.Millisecond, -10 * time.Millisecond} {
		b := newBench(t)
		b.read(0)
		b.pass(ReadEvery)
		b.wrong = wrong
		b.read(0)
		require.Zero(t, b.off())
		begun := b.monotonic
		last, _ := b.Now()
		for b.monotonic < begun+ReadEvery {
			b.monotonic += 2 * time.Millisecond
			at, _ := b.Now()
			require.Greater(t, at, last, "time stands still or runs backwards")
			last = at
			passed := wrong.Seconds() * (b.monotonic - begun).Seconds() / ReadEvery.Seconds()
			require.InDelta(t, passed, b.off().Seconds(), 0.001)
		}
		require.Equal(t, wrong, b.off())
		b.monotonic += 10 * ReadEvery
		require.Equal(t, wrong, b.off(), "with no reading since, it stays")
		require.Equal(t, Stats{}, b.Stats())
	}
}

// TestSlowReading: what may be due to the time that a reading took does not count.
func TestSlowReading(t *testing.T) {
	for _, at := range []time.Duration{0, 2 * time.Second, 4 * time.Second} {
		b := newBench(t)
		b.read(0)
		for range 5 {
			b.readAt(4*time.Second, at)
			require.Zero(t, b.off(), "the clock was read %s after it was asked", at)
		}
		require.Zero(t, b.Stats())
	}
	b := newBench(t)
	b.read(0)
	b.wrong = 1000 * time.Hour
	b.read(4 * time.Second)
	b.read(4 * time.Second)
	require.Equal(t, b.wrong, b.off(), "more than that counts")
}

// TestNeverBackwardsBetweenSteps: time moves forward through small differences and slow readings.
func TestNeverBackwardsBetweenSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(t)
		b.read(0)
		last, _ := b.Now()
		later := func() {
			at, _ := b.Now()
			require.GreaterOrEqual(t, at, last)
			require.LessOrEqual(t, at.Add(0)-last, lastseen.Instant(20_000))
			last = at
		}
		for range 30 {
			b.monotonic += time.Duration(rapid.IntRange(0, 12_000_000).Draw(t, "µs")) * time.Microsecond
			later()
			b.wrong = time.Duration(rapid.IntRange(-400, 400).Draw(t, "wrong ms")) * time.Millisecond
			trip := time.Duration(rapid.IntRange(0, 3000).Draw(t, "trip ms")) * time.Millisecond
			b.readAt(trip, time.Duration(rapid.Float64Range(0, 1).Draw(t, "at")*float64(trip)))
			later()
		}
		require.Zero(t, b.Stats().Steps)
	})
}

// TestBeyondTheCalendar: readings outside the valid instants are clamped.
func TestBeyondTheCalendar(t *testing.T) {
	for reading, want := range map[time.Time]lastseen.Instant{
		time.Unix(-5, 0):                       lastseen.MinInstant,
		time.Unix(0, 0):                        lastseen.MinInstant,
		time.Unix(6_000_000_000_000, 0):        lastseen.MaxInstant,
		time.UnixMilli(begin):                  begin,
		time.Unix(253_402_300_800_000/1000, 0): lastseen.MaxInstant,
	} {
		b := newBench(t)
		b.Set(reading, b.monotonic, b.monotonic)
		at, _ := b.Now()
		require.Equal(t, want, at)
	}
}
