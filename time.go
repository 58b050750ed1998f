package lastseen

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Instant is a point in time: whole milliseconds since 1970 in UTC, leap seconds not counted. Zero
// means "none" where that makes sense.
type Instant int64

// The bounds of what can be recorded: the first millisecond after 1970 began, and the last one that
// RFC 3339 can write, at the end of the year 9999.
const (
	MinInstant Instant = 1
	MaxInstant Instant = 253402300799999
)

// InstantOf cuts t down to the millisecond.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Add returns the instant d later, d cut to the millisecond.
func (t Instant) Add(d time.Duration) Instant { return t + millis(d) }

// String returns t as RFC 3339 in UTC with three fractional digits.
func (t Instant) String() string { return string(t.Append(nil)) }

// Append appends what String returns to b. Package time formats RFC 3339 itself several times as fast
// as it follows a layout of ours, so the three digits are put in by hand.
func (t Instant) Append(b []byte) []byte {
	b = time.UnixMilli(int64(t)).UTC().AppendFormat(b, time.RFC3339) // without a fraction, ends in Z
	ms := (int64(t)%1000 + 1000) % 1000
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// timeForms says in an error what a time may look like.
const timeForms = "times are RFC 3339 (2026-11-20T22:00:00Z) or Unix seconds (1795212000.123)"

// ParseTime reads a time: RFC 3339, or Unix seconds with an optional fraction, as Prometheus takes
// them. It is read as decimal and cut down to the millisecond. Times lie between 1970 and the end
// of the year 9999, both included; a number that only makes sense as milliseconds is an error that
// says so.
func ParseTime(s string) (Instant, error) {
	if len(s) > 4 && s[4] == '-' && allDigits(s[:4]) {
		return parseRFC3339(s)
	}
	ms, err := parseDecimalMillis(s)
	switch {
	case errors.Is(err, errTooLarge) || err == nil && Instant(ms) > MaxInstant:
		if err == nil && Instant(ms/1000) <= MaxInstant {
			return 0, fmt.Errorf("%s looks like milliseconds: divide by 1000, times are in seconds", quote(s))
		}
		return 0, fmt.Errorf("%s is beyond the year 9999: %s", quote(s), timeForms)
	case err != nil:
		return 0, fmt.Errorf("%s is not a valid time: %s", quote(s), timeForms)
	case ms < 0 || strings.HasPrefix(s, "-"):
		return 0, fmt.Errorf("%s is before 1970: %s", quote(s), timeForms)
	}
	return Instant(ms), nil
}

func parseRFC3339(s string) (Instant, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(s)); err != nil {
		if strings.Contains(s, " ") {
			return 0, fmt.Errorf("%s is not a valid time: %s; in a query, write + as %%2B", quote(s), timeForms)
		}
		return 0, fmt.Errorf("%s is not a valid time: %s", quote(s), timeForms)
	}
	if at := InstantOf(t); at >= 0 && at <= MaxInstant {
		return at, nil
	}
	return 0, fmt.Errorf("%s is not between 1970 and the end of the year 9999 in UTC", quote(s))
}
