package api

import "time"

// wakeGrid is the distance of the moments at which timers of sessions fire. Many together take a third of the CPU time:
// the processors do not go to sleep in between, and the pongs arrive together, too.
const wakeGrid = 250 * time.Millisecond

// onGrid shortens a duration so that it ends on the grid. It is at least minWake.
func onGrid(now time.Time, d time.Duration) time.Duration {
	return max(minWake, now.Add(d).Truncate(wakeGrid).Sub(now))
}
