//go:build !linux

package clock

import "time"

var start = time.Now()

// Monotonic returns the time since the start of this process. It may leave out the time in which the machine was
// suspended.
func Monotonic() time.Duration { return time.Since(start) }
