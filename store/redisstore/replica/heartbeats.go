package replica

import (
	"sync"
	"time"

	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// beatsKept is the number of heartbeats whose time is remembered. There are fewer in the largest lag: those
// before are too old in any case.
const beatsKept = 64

// beat is a heartbeat: a number that this process wrote to the primary, and when, by both of its clocks.
type beat struct {
	number int64
	mono   time.Duration
	wall   time.Time
}

// beats are the heartbeats of this process. A replica that has a number has everything that the primary did before it
// was written, so its age follows from this machine's clocks alone.
type beats struct {
	monotonic func() time.Duration
	now       func() time.Time

	mu   sync.RWMutex
	last int64 // the number of the newest; 0 before the first
	kept [beatsKept]beat
}

func newBeats(o redisclient.Options) *beats {
	return &beats{monotonic: o.Monotonic, now: o.Now}
}

// present returns a beat of this moment, without a number.
func (b *beats) present() beat { return beat{mono: b.monotonic(), wall: b.now().Round(0)} }

// next begins a heartbeat. It is called before the number is sent, so that the beat is never younger than what the
// primary did before it.
func (b *beats) next() beat {
	next := b.present()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	next.number = b.last
	b.kept[next.number%beatsKept] = next
	return next
}

// find returns the heartbeat with a number, unless it is none of the last ones.
func (b *beats) find(number int64) (beat, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if number < 1 || number > b.last || b.last-number >= beatsKept {
		return beat{}, false
	}
	return b.kept[number%beatsKept], true
}

// age returns how long ago a heartbeat was, by the clock that says more. While a machine is suspended, its monotonic
// clock may stand still; the other one may be set back.
func (b *beats) age(of beat) time.Duration {
	at := b.present()
	return max(at.mono-of.mono, at.wall.Sub(of.wall), 0)
}
