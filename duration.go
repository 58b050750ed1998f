package lastseen

import (
	"errors"
	"fmt"
	"time"
)

// The bounds of every duration that can be configured or asked for. A year has 365 days here.
const (
	MinDuration = time.Millisecond
	MaxDuration = 10 * 365 * 24 * time.Hour
)

// ParseDuration reads a duration in a request: Go syntax ("90s", "5m", "1h30m"), or bare seconds
// with an optional fraction ("90", "0.5"). It is cut down to the millisecond and lies between 1 ms
// and 10 years.
func ParseDuration(s string) (time.Duration, error) {
	ms, err := parseDecimalMillis(s)
	switch {
	case errors.Is(err, errNotDecimal):
		return parseGoDuration(s)
	case err != nil || ms < 0 || ms > MaxDuration.Milliseconds(): // those beyond could wrap around in nanoseconds
		return 0, durationBounds(s)
	}
	return boundDuration(s, time.Duration(ms)*time.Millisecond)
}

// ParseConfigDuration reads a duration in a configuration: Go syntax only. A bare number is an
// error, since configurations elsewhere mean seconds, milliseconds or nanoseconds by it.
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
		return 0, durationBounds(s)
	}
	return d, nil
}

func durationBounds(s string) error {
	return fmt.Errorf("%s is out of range: durations are between 1ms and 10 years (87600h)", quote(s))
}
