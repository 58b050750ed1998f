package calls

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestRun: the loops do their work when it is due, and when something happens, until the context ends.
func TestRun(t *testing.T) {
	f, k := newSingle(t)
	k.receive = k.Receive
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		k.Run(ctx)
		close(stopped)
	}()
	c := store.NewCall{ID: "id", From: "alice", To: "bob", Ring: time.Millisecond, Timeout: timeout}
	_, err := done(k.Start(t.Context(), ns, c))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		f.elapsed.Add(int64(c.Ring))
		return k.Stats().Reached[lastseen.Missed] == 1
	}, time.Minute, time.Millisecond)
	require.True(t, k.Stats().Watching)
	cancel()
	<-stopped
	require.Equal(t, f.monotonic()+time.Millisecond, f.until, "the lease was given up")
}

// TestReceive: signals of other kinds, and the zero signal, change nothing.
func TestReceive(t *testing.T) {
	for kind, wanted := range map[string]bool{
		"": false, "self": false, "typing": false, Signal(ns, "id", "alice").Kind: true,
	} {
		k := New(nil, slog.New(slog.DiscardHandler))
		k.Receive(store.Signal{Kind: kind, Namespace: ns, User: "alice"})
		require.Equal(t, wanted, k.watch.wanted(0), kind)
	}
}

// TestDefaults: a manager that nobody configures keeps nobody active.
func TestDefaults(t *testing.T) {
	k := New(nil, slog.New(slog.DiscardHandler))
	require.False(t, k.Active(ns, "alice", "", time.Hour))
	require.Equal(t, time.Minute, k.Timeout(ns))
	k.Late(time.Second)
	require.Zero(t, k.monotonic().Truncate(time.Minute))
	require.Equal(t, map[lastseen.CallState]int64{
		lastseen.Ringing: 0, lastseen.Active: 0, lastseen.Ended: 0, lastseen.Rejected: 0, lastseen.Cancelled: 0,
		lastseen.Missed: 0, lastseen.Lost: 0,
	}, k.Stats().Reached)
}

// TestSchedule compares a schedule with a map.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s schedule[int]
		model := map[int]time.Duration{}
		keys, times := rapid.IntRange(0, 9), rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 20).Draw(t, "time"))
		})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key, at := keys.Draw(t, "key"), times.Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				s.set(key, at)
				model[key] = at
			case 1:
				s.advance(key, at)
				if old, known := model[key]; !known || at < old {
					model[key] = at
				}
			case 2:
				s.remove(key)
				delete(model, key)
			case 3:
				first, ok := s.pop(at)
				due := model[first]
				if !ok {
					require.Positive(t, s.rest(at, time.Hour))
				} else {
					require.Contains(t, model, first)
					require.LessOrEqual(t, due, at)
					delete(model, first)
				}
				for _, d := range model {
					require.True(t, ok && d >= due || !ok && d > at)
				}
			}
			require.Equal(t, model[key] != 0 && model[key] > 7, s.after(key, 7))
			_, known := model[key]
			require.Equal(t, known, s.has(key))
			require.Len(t, s.slots, len(model))
			require.True(t, s.queue == nil || s.queue.Len() == len(model))
		}
	})
}

func TestWarnings(t *testing.T) {
	var log bytes.Buffer
	k, f := &Manager{logger: slog.New(slog.NewTextHandler(&log, nil))}, warnings{}
	warns := func(now time.Duration, failed bool) bool {
		log.Reset()
		k.monotonic = func() time.Duration { return now }
		var err error
		if failed {
			err = store.ErrUnavailable
		}
		k.warn(t.Context(), &f, "cannot work", ns, err)
		return log.Len() > 0
	}
	require.False(t, warns(0, false))
	require.True(t, warns(0, true))
	require.False(t, warns(2*time.Minute, true), "the same series")
	require.False(t, warns(3*time.Minute, false))
	require.True(t, warns(4*time.Minute, true))
	require.False(t, warns(4*time.Minute+time.Second, false))
	require.False(t, warns(4*time.Minute+2*time.Second, true), "a short time later")
	require.False(t, warns(5*time.Minute, false))
	require.True(t, warns(5*time.Minute+time.Second, true))
}
