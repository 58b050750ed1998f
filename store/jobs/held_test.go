package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// unlisted is a store that cannot list its namespaces for a while.
type unlisted struct {
	*shiftedClock
	down bool
}

func (s *unlisted) Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error) {
	if s.down {
		return nil, errors.New("cannot list")
	}
	return s.shiftedClock.Namespaces(ctx, after, limit)
}

// TestRetentionForgetsWaitingWithTheClock: what rounds found before the clock moved says nothing about the time after
// it, even if no round visited a namespace while the clock was not steady.
func TestRetentionForgetsWaitingWithTheClock(t *testing.T) {
	j := newRetentionTest(t, 24*roundEvery)
	s := &unlisted{shiftedClock: &shiftedClock{Store: j.openFile(t)}}
	j.store = s
	ping(t, s, "chat", map[string]time.Duration{"old": 2 * time.Hour})
	j.meantime = func() {
		switch at := j.monotonic(); at {
		case 5 * roundEvery:
			s.by, s.down = 2*time.Second, true
		case 5*roundEvery + steadyFor + roundEvery:
			s.down = false
		}
	}
	j.Run(j.ctx)
	require.Contains(t, j.log.String(), "is deleted again")
	requireUsers(t, s, "chat", "old")
}
