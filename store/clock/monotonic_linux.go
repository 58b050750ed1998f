package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time since the machine started, with the time in which it was suspended. Go's monotonic time
// leaves that out: a time that is computed from it would be behind after a suspend, until two readings agree.
func Monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every kernel that Go supports has this clock
	return time.Duration(t.Nano())
}
