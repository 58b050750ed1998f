package telemetry

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
)

// TestLateTimerEndsNothing checks that the timer of a recovery does not end the outage if a request has failed again,
// and succeeded again, when it gets the lock: the outage would end twice, and the count of outages would be wrong.
func TestLateTimerEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewOutages(slog.New(slog.DiscardHandler), time.Now)
		l.Failed(problem.Overloaded, Writing, errors.New("down"))
		l.Succeeded(Writing)
		o := l.outages[problem.Overloaded]
		first := o.total
		l.Failed(problem.Overloaded, Writing, errors.New("down"))
		l.Succeeded(Writing)
		l.end(o, first) // as the first timer does if it fires just before it is stopped
		require.EqualValues(t, 1, l.ongoing.Load())
		time.Sleep(SettleTime)
		synctest.Wait()
		require.Zero(t, l.ongoing.Load())
		require.Empty(t, l.outages)
		time.Sleep(countEvery) // the last timer
	})
}
