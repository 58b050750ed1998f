package coalesce

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// TestTimeoutFailsTheQueue checks that calls which waited behind a batch that timed out fail with it, and that
// calls made afterwards are sent.
func TestTimeoutFailsTheQueue(t *testing.T) {
	inBubble(t, Options{Timeout: time.Second}, []string{""}, func(r *rig) {
		begun := time.Now()
		first := r.ping("chat", "alice")
		queued, many := r.ping("chat", "bob"), r.ping("game", crowd(2000)...)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(r, time.Second, time.Since(begun))
		for _, c := range []*result{first, queued, many} {
			require.True(r, c.done)
			require.ErrorIs(r, c.err, store.ErrUnavailable)
		}
		require.Equal(r, []string{"chat:1"}, r.sizes())
		require.Zero(r, r.s.Stats().Pings.Queued)
		later := r.ping("chat", "carol")
		r.letGo(1)
		r.answered(later)
	})
}

// TestOnlyTimeoutsFailTheQueue checks that calls are sent although the batch before them failed at once.
func TestOnlyTimeoutsFailTheQueue(t *testing.T) {
	inBubble(t, Options{Timeout: time.Second}, []string{""}, func(r *rig) {
		r.fake.broken["chat"] = store.ErrUnavailable
		first, queued := r.ping("chat", "alice"), r.ping("game", "bob")
		r.letGo(1)
		require.ErrorIs(r, first.err, store.ErrUnavailable)
		r.letGo(1)
		r.answered(queued)
	})
}

// TestNobodyWaitsLongerThanTwoTimeouts checks the bound with a store that hangs and with one that answers each
// batch just in time, while more callers come than a batch holds.
func TestNobodyWaitsLongerThanTwoTimeouts(t *testing.T) {
	const callers = 600
	for name, delay := range map[string]time.Duration{"hangs": time.Hour, "slow": 900 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{Timeout: time.Second, BatchSize: 100}, nil, func(r *rig) {
				r.fake.delay = delay
				waited, errs := make([]time.Duration, callers), make([]error, callers)
				for caller := range callers {
					go func() {
						time.Sleep(time.Duration(caller) * 5 * time.Millisecond)
						begun := time.Now()
						errs[caller] = r.anyCall(caller)
						waited[caller] = time.Since(begun)
					}()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.LessOrEqual(r, slices.Max(waited), 2*time.Second)
				for _, err := range errs {
					require.True(r, err == nil || errors.Is(err, store.ErrUnavailable), err)
				}
				answered := slices.ContainsFunc(errs, func(err error) bool { return err == nil })
				require.Equal(r, name == "slow", answered)
			})
		})
	}
}

func (r *rig) anyCall(n int) (err error) {
	ctx := context.Background()
	switch n % 3 {
	case 0:
		_, err = r.s.Ping(ctx, "chat", []store.PresenceEvent{{User: "alice", At: 1}})
	case 1:
		_, _, err = r.s.Describe(ctx, "chat", []string{"alice"})
	default:
		_, _, err = r.s.Describe(ctx, "chat", crowd(700))
	}
	return err
}
