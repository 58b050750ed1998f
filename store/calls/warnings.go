package calls

import "time"

// warningsPause is the shortest time between two warnings: while a part of a Cluster is away, some namespaces fail and
// others do not, many times a second.
const warningsPause = time.Minute

// warnings limits how often errors are logged. The zero value has logged nothing.
type warnings struct {
	failing bool // the last result was an error
	last    time.Duration
}

// next takes a result at a time of a monotonic clock. It reports whether to log it: the first of a series of errors,
// unless another one was logged a short time ago.
func (w *warnings) next(now time.Duration, failed bool) bool {
	first := failed && !w.failing && (w.last == 0 || now >= w.last+warningsPause)
	w.failing = failed
	if first {
		w.last = max(1, now)
	}
	return first
}
