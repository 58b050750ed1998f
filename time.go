package lastseen

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Instant is a point in time: whole milliseconds since 1970 in UTC, without leap seconds. Zero means "none" where that
// makes sense.
type Instant int64

// The bounds of what can be recorded: the first millisecond of 1970 after its start, and the last one that RFC 3339 can
// express, at the end of the year 9999.
const (
	MinInstant Instant = 1
	MaxInstant Instant = 253402300799999
)

// InstantOf returns t, cut down to the millisecond.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Add returns the instant d later, d cut to the millisecond.
func (t Instant) Add(d time.Duration) Instant { return t + millis(d) }

// Sub returns the time from u to t: negative if u is later. They must not be more than 292 years apart.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t-u) * time.Millisecond }

// String returns t as RFC 3339 in UTC with three fractional digits.
func (t Instant) String() string { return string(t.Append(nil)) }

// Append appends t to b, as String formats it. Package time formats RFC 3339 several times as fast as a custom layout,
// so Append inserts the three digits itself.
func (t Instant) Append(b []byte) []byte {
	b = time.UnixMilli(int64(t)).UTC().AppendFormat(b, time.RFC3339) // without a fraction, ends in Z
	ms := (int64(t)%1000 + 1000) % 1000
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// timeForms is the part of an error that says what is allowed.
const timeForms = "times are RFC 3339 (2026-11-20T22:00:00Z) or Unix seconds (1795212000.123)"

// ParseTime reads a time: RFC 3339, or decimal Unix seconds with an optional fraction. It cuts the time down to the
// millisecond. Times are between 1970 and the end of the year 9999, both included. The error for a number that only
// makes sense as milliseconds says so.
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
	t, ok := readRFC3339(s)
	if !ok {
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

// readRFC3339 parses a time as RFC 3339, section 5.6, defines it. Package time also takes hours of one digit, a comma
// for the point, and offsets such as +24:00, but no letters in lower case. It takes no leap second either: one can only
// be the last second of a month in UTC. It is the same instant as the second after it, as in all Unix times.
func readRFC3339(s string) (t time.Time, ok bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || s[13] != ':' || s[16] != ':' || !endsAsRFC3339(s[19:]) {
		return t, false
	}
	text := []byte(s)
	text[10] &^= 0x20 // upper case of a letter
	if text[len(text)-1] == 'z' {
		text[len(text)-1] = 'Z'
	}
	leap := s[17:19] == "60"
	if leap {
		copy(text[17:], "59")
	}
	if err := t.UnmarshalText(text); err != nil {
		return t, false
	}
	if leap {
		t = t.Add(time.Second)
		after := t.UTC().Truncate(time.Second)
		year, month, _ := after.Date()
		return t, after.Equal(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC))
	}
	return t, true
}

// endsAsRFC3339 reports whether a text is what RFC 3339 allows after the seconds: a fraction, and an offset.
func endsAsRFC3339(s string) bool {
	if fraction, ok := strings.CutPrefix(s, "."); ok {
		if s = strings.TrimLeft(fraction, "0123456789"); s == fraction {
			return false
		}
	}
	switch {
	case s == "Z" || s == "z":
		return true
	case len(s) != len("+00:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' || !allDigits(s[1:3]+s[4:]):
		return false
	}
	return s[1:3] < "24" && s[4:] < "60"
}

// The bounds of every duration in a request or a configuration. A year has 365 days here.
const (
	MinDuration = time.Millisecond
	MaxDuration = 10 * 365 * 24 * time.Hour
)

// ParseDuration reads a duration in a request: Go syntax ("90s", "5m", "1h30m"), or bare seconds with an optional
// fraction ("90", "0.5"). It cuts the duration down to the millisecond. Durations are between 1 ms and 10 years.
func ParseDuration(s string) (time.Duration, error) {
	ms, err := parseDecimalMillis(s) // 0 after an error
	if errors.Is(err, errNotDecimal) {
		return parseGoDuration(s)
	}
	ms = max(0, min(ms, MaxDuration.Milliseconds()+1)) // so that nanoseconds cannot overflow
	return boundDuration(s, time.Duration(ms)*time.Millisecond)
}

// ParseConfigDuration reads a duration in a configuration: Go syntax only. A bare number is an error, since it means
// seconds, milliseconds or nanoseconds in the configurations of other programs.
func ParseConfigDuration(s string) (time.Duration, error) {
	if _, err := parseDecimalMillis(s); !errors.Is(err, errNotDecimal) {
		return 0, fmt.Errorf("%s has no unit (examples: 90s, 5m, 1h30m)", quote(s))
	}
	return parseGoDuration(s)
}

func parseGoDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s is not a valid duration (examples: 90s, 5m, 1h30m)", quote(s))
	}
	return boundDuration(s, d)
}

func boundDuration(s string, d time.Duration) (time.Duration, error) {
	d = d.Truncate(time.Millisecond)
	if d < MinDuration || d > MaxDuration {
		return 0, fmt.Errorf("%s is out of range: durations are between 1ms and 10 years (87600h)", quote(s))
	}
	return d, nil
}

func millis(d time.Duration) Instant { return Instant(d.Milliseconds()) }

var (
	errNotDecimal = errors.New("not a decimal number")
	errTooLarge   = errors.New("too large")
)

// maxDigits is the number of digits that always fit into an int64.
const maxDigits = 18

// parseDecimalMillis reads a decimal number ("12", "-0.5", "1.7e9") and returns it in thousandths, cut towards zero. It
// uses no float, so no digit is lost. Its errors are errNotDecimal and errTooLarge.
func parseDecimalMillis(s string) (int64, error) {
	mantissa, exponent, err := splitExponent(s)
	if err != nil {
		return 0, err
	}
	unsigned := strings.TrimPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	if whole+fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return 0, errNotDecimal
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return 0, nil
	}
	// The value is 0.digits × 10^point, so its thousandths are the first point+3 digits.
	point := len(digits) - len(fraction) + exponent
	kept := point + 3
	switch {
	case kept > maxDigits:
		return 0, errTooLarge
	case kept <= 0:
		return 0, nil
	case kept <= len(digits):
		digits = digits[:kept]
	default:
		digits += strings.Repeat("0", kept-len(digits))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if unsigned != mantissa {
		n = -n
	}
	return n, err
}

// splitExponent separates "1.7e9" into "1.7" and 9.
func splitExponent(s string) (mantissa string, exponent int, err error) {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return s, 0, nil
	}
	digits := s[i+1:]
	if len(digits) > 1 && (digits[0] == '+' || digits[0] == '-') {
		digits = digits[1:]
	}
	if digits == "" || len(digits) > 4 || !allDigits(digits) {
		return "", 0, errNotDecimal
	}
	exponent, err = strconv.Atoi(s[i+1:])
	return s[:i], exponent, err
}

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }
