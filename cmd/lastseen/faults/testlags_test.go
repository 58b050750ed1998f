//go:build faults

package faults

import (
	"fmt"
	"time"
)

// longestLag is what longer ones count as.
const longestLag = time.Minute

// lags are how long changes took to arrive. The zero value is empty.
type lags struct {
	counts [longestLag/time.Millisecond + 1]int32 // by milliseconds
	n      int
}

// add counts a lag. Clocks of one machine may differ by the millisecond to which they are rounded.
func (l *lags) add(lag time.Duration) {
	l.counts[min(max(lag, 0), longestLag)/time.Millisecond]++
	l.n++
}

// merge adds others.
func (l *lags) merge(others *lags) {
	for i, n := range others.counts {
		l.counts[i] += n
	}
	l.n += others.n
}

// feedLags are the lags of a changes feed.
type feedLags struct {
	changed lags // from a ping or a leave to the watcher
	decayed lags // from the instant of a decay to the watcher
}

func (l *feedLags) merge(others *feedLags) {
	l.changed.merge(&others.changed)
	l.decayed.merge(&others.decayed)
}

func (l *feedLags) String() string {
	return fmt.Sprintf("pings and leaves arrived after (%s), decays (%s)", &l.changed, &l.decayed)
}

// quantile returns the lag that the given share does not exceed.
func (l *lags) quantile(share float64) time.Duration {
	rest := int(share * float64(l.n-1))
	for i, n := range l.counts {
		if rest -= int(n); rest < 0 {
			return time.Duration(i) * time.Millisecond
		}
	}
	return 0
}

func (l *lags) String() string {
	return fmt.Sprintf("%d: p50 %s, p99 %s, p99.9 %s, longest %s", l.n, l.quantile(0.5), l.quantile(0.99),
		l.quantile(0.999), l.quantile(1))
}
