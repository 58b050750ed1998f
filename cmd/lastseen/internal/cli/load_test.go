package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/client"
)

// TestLoadCountsWaiting: while all that can be in flight wait for a server that hangs for three seconds, the requests
// behind them are due. They are sent later, and as slow as that.
func TestLoadCountsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &load{kind: "pings", rate: 64, send: func(context.Context) error {
			if since := time.Since(began); since < 3*time.Second {
				time.Sleep(3*time.Second - since)
			}
			time.Sleep(time.Millisecond)
			return nil
		}}
		l.run(t.Context(), 10*time.Second)
		r := l.result()
		require.Equal(t, 640, r.Sent)
		require.Zero(t, r.Failed)
		require.Zero(t, l.late)
		require.InDelta(t, 1, r.P50, 0.1)
		// 192 of 640 were due within the first three seconds: the slowest tenth waited for two seconds and more.
		require.InDelta(t, 2000, r.P90, 50)
		require.InDelta(t, 3001, r.Max, 1)
	})
}

// TestLoadOfDeadServer ends: what is due for longer than a request waits is not sent.
func TestLoadOfDeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &load{kind: "pings", rate: 100, send: func(context.Context) error {
			time.Sleep(loadPatience)
			return errors.New("no response")
		}}
		l.run(t.Context(), time.Minute)
		r := l.result()
		require.Less(t, l.lasted, time.Minute+2*loadPatience+time.Second)
		require.Equal(t, 6000, r.Sent+l.late)
		require.Equal(t, r.Sent, r.Failed)
		require.Equal(t, 6000-l.late, l.failures[""].times)
		require.Positive(t, l.late)
		require.Len(t, r.cells(), 4, "no times")
	})
}

// TestLoadEndsWithContext counts what was answered until then, and nothing that was cut off.
func TestLoadEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+time.Millisecond)
		defer cancel()
		l := &load{kind: "pings", rate: 10, send: func(ctx context.Context) error {
			select {
			case <-time.After(100 * time.Millisecond):
				return &client.Error{Code: "rate_limited"}
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		l.run(ctx, time.Minute)
		require.Equal(t, 20, l.failures["rate_limited"].times)
		require.Equal(t, 20, l.result().Sent)
	})
}
