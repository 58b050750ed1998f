package replica

import (
	"sync"
	"time"

	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// heartbeatsKept is the number of heartbeats whose time is remembered. There are fewer in the largest lag: those
// before are too old in any case.
const heartbeatsKept = 64

// heartbeat is a number that this process wrote to the primary, and when, by both of its clocks.
type heartbeat struct {
	number int64
	mono   time.Duration
	wall   time.Time
}

// heartbeats are those of this process. A replica that has a number has everything that the primary did before
// it was written, so its age follows from this machine's clocks alone.
type heartbeats struct {
	monotonic func() time.Duration
	now       func() time.Time

	mu   sync.RWMutex
	last int64 // the number of the newest; 0 before the first
	kept [heartbeatsKept]heartbeat
}

func newHeartbeats(o redisclient.Options) *heartbeats {
	return &heartbeats{monotonic: o.Monotonic, now: o.Now}
}

// present returns a heartbeat of this moment, without a number.
func (b *heartbeats) present() heartbeat { return heartbeat{0, b.monotonic(), b.now().Round(0)} }

// next begins a heartbeat. It is called before the number is sent, so that the heartbeat is never younger than what the
// primary did before it.
func (b *heartbeats) next() heartbeat {
	next := b.present()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	next.number = b.last
	b.kept[next.number%heartbeatsKept] = next
	return next
}

// find returns the heartbeat with a number, unless it is none of the last ones.
func (b *heartbeats) find(number int64) (heartbeat, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if number < 1 || number > b.last || b.last-number >= heartbeatsKept {
		return heartbeat{}, false
	}
	return b.kept[number%heartbeatsKept], true
}

// age returns how long ago a heartbeat was, by the clock that says more. While a machine is suspended, its monotonic
// clock may stand still; the other one may be set back.
func (b *heartbeats) age(of heartbeat) time.Duration {
	at := b.present()
	return max(at.mono-of.mono, at.wall.Sub(of.wall), 0)
}
