package connections

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// clockReading is the time by two clocks.
type clockReading struct {
	monotonic time.Duration
	store     lastseen.Instant
}

// now returns the present. Without the store's time, only the monotonic one is set.
func (r *Registry) now(ctx context.Context) (clockReading, error) {
	now, err := r.o.Store.Now(ctx)
	return clockReading{r.monotonic(), now}, err
}

// at returns the time by the store's clock at a monotonic time, as that clock runs now.
func (m clockReading) at(monotonic time.Duration) lastseen.Instant {
	return max(lastseen.MinInstant, m.store.Add(monotonic-m.monotonic))
}

// notBefore returns the time at a monotonic time, but not one before an earlier event of the same connection: the
// store's clock may have been slowed down since. An event that the store would take to be in the future says nothing:
// the clock was set back since.
func (m clockReading) notBefore(earlier lastseen.Instant, monotonic time.Duration) lastseen.Instant {
	at := m.at(monotonic)
	if earlier > m.store.Add(store.MaxAhead) {
		return at
	}
	return max(at, earlier)
}

// steady returns a time that was reckoned before if it is about the same now, and otherwise the new one: the store's
// clock was set since.
func steady(before, now lastseen.Instant) lastseen.Instant {
	if before < now.Add(-store.MaxClockDrift) || before > now.Add(store.MaxClockDrift) {
		return now
	}
	return before
}
