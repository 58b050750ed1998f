package replica

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// heartbeat is when this process wrote it to the primary, by both of its clocks. A replica that has it has everything
// that the primary did before, so its age follows from this machine's clocks alone.
type heartbeat struct {
	mono time.Duration
	wall time.Time
	read bool // from a replica
}

// String returns what Redis has: nanoseconds by both clocks.
func (h heartbeat) String() string { return fmt.Sprintf("%d %d", h.mono, h.wall.UnixNano()) }

// clocks are those of this machine.
type clocks struct {
	monotonic func() time.Duration
	now       func() time.Time
}

// present returns a heartbeat of this moment.
func (c clocks) present() heartbeat { return heartbeat{mono: c.monotonic(), wall: c.now().Round(0)} }

// parse reads what a replica has; false if this process has not written it.
func (c clocks) parse(text string) (heartbeat, bool) {
	first, second, _ := strings.Cut(text, " ")
	mono, err1 := strconv.ParseInt(first, 10, 64)
	wall, err2 := strconv.ParseInt(second, 10, 64)
	ours := err1 == nil && err2 == nil && time.Duration(mono) <= c.monotonic()
	return heartbeat{time.Duration(mono), time.Unix(0, wall), true}, ours
}

// age returns how long ago a heartbeat was, by the clock that says more. While a machine is suspended, its monotonic
// clock may stand still; the other one may be set back.
func (c clocks) age(of heartbeat) time.Duration {
	at := c.present()
	return max(at.mono-of.mono, at.wall.Sub(of.wall), 0)
}
