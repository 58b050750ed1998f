package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// unconnected returns replicas whose largest lag is a second, one of them, and the time of their clocks.
func unconnected(log io.Writer) (*Set, *replica, *time.Duration) {
	passed := new(time.Duration)
	o := Options{MaxLag: time.Second, Client: redisclient.Options{
		Monotonic: func() time.Duration { return *passed },
		Now:       func() time.Time { return time.UnixMilli(0).Add(*passed) },
	}}
	client := &redisclient.Client{
		Timeout: time.Minute, Log: &redisclient.OnceLogger{Logger: slog.New(slog.NewTextHandler(log, nil))},
	}
	r := &Set{client: client, o: o, clocks: clocks{o.Client.Monotonic, o.Client.Now}}
	one := &replica{addr: "192.0.2.1:6379"}
	first := r.clocks.present()
	one.seen.Store(&first)
	return r, one, passed
}

// TestReplicaReport: the log has a replica that cannot be read, once, when that has lasted for longer than the largest
// lag, and when it can be read again.
func TestReplicaReport(t *testing.T) {
	t.Parallel()
	log := &strings.Builder{}
	r, one, passed := unconnected(log)
	logged := func() string {
		defer log.Reset()
		return log.String()
	}
	failure := errors.New("WRONGPASS invalid username-password pair")
	r.report(one, nil)
	r.report(one, failure)
	*passed += time.Second
	r.report(one, failure)
	r.report(one, nil)
	*passed++
	r.report(one, failure)
	require.Empty(t, logged(), "it has not lasted for long")

	for _, about := range []struct {
		err  error
		text string
	}{{failure, "WRONGPASS"}, {redis.Nil, "no heartbeat"}} {
		r.report(one, about.err)
		*passed += time.Second + 1
		r.report(one, about.err)
		r.report(one, errors.New("another"))
		text := logged()
		require.Equal(t, 1, strings.Count(text, "cannot read from a replica"), text)
		require.Contains(t, text, about.text)
		require.Contains(t, text, one.addr)
		r.report(one, nil)
		r.report(one, nil)
		text = logged()
		require.Equal(t, 1, strings.Count(text, "a replica can be read from again"), text)
	}
}

// TestReplicaCheckNotesHeartbeats: each read shows how near the replica is, not only probes.
func TestReplicaCheckNotesHeartbeats(t *testing.T) {
	t.Parallel()
	r, one, passed := unconnected(io.Discard)
	reading := &hook{r, one}
	check := func(of heartbeat) error {
		get := redis.NewStringCmd(context.Background(), "get", "heartbeat")
		get.SetVal(of.String())
		return reading.check(&answer{replica: one}, get)
	}
	first := r.clocks.present()
	*passed++
	second := r.clocks.present()
	require.NoError(t, check(second))
	require.Equal(t, second.mono, one.seen.Load().mono)
	require.NoError(t, check(first))
	require.Equal(t, second.mono, one.seen.Load().mono, "a response that is late")
	*passed += time.Second / 2
	third := r.clocks.present()
	require.NoError(t, check(third))
	require.Equal(t, third.mono, one.seen.Load().mono)
	third.mono++
	require.ErrorIs(t, check(third), errBehind, "it is not of this process")
	*passed += time.Second + 1
	require.ErrorIs(t, check(second), errBehind)
}

// TestReplicaBlame: only what says something about a replica is counted, and only its own failures end its use. What it
// answered or failed to answer is measured.
func TestReplicaBlame(t *testing.T) {
	t.Parallel()
	behind := redisclient.Translate(errBehind)
	unavailable := fmt.Errorf("%w: it is slow", store.ErrUnavailable)
	for name, test := range map[string]struct {
		did    answer
		goes   bool // the caller does, during the call
		err    error
		counts Stats
	}{
		"it answers":      {did: answer{asked: true}, counts: Stats{Replica: 1}},
		"in the end":      {did: answer{asked: true}, goes: true, counts: Stats{Replica: 1}},
		"it is behind":    {did: answer{behind: true, failed: true}, err: behind, counts: Stats{Behind: 1}},
		"it fails":        {did: answer{failed: true}, err: unavailable, counts: Stats{Failed: 1}},
		"it has odd data": {did: answer{failed: true}, err: store.ErrWrongType, counts: Stats{Failed: 1}},
		"the primary":     {err: unavailable},
		"the caller":      {did: answer{failed: true}, goes: true, err: unavailable},
		"it is not asked": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, one, passed := unconnected(io.Discard)
			var measured []string
			r.o.Observe = func(operation string, took time.Duration, err error) {
				measured = append(measured, fmt.Sprint(operation, " ", took, " ", err))
			}
			one.working.Store(true)
			one.saw(r.clocks.present())
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			reads := &reads{replicas: r, replica: one, namespace: "chat"}
			succeeded := reads.try(ctx, "count", "chat", func(ctx context.Context) error {
				*passed += time.Millisecond
				if *answerOf(ctx) = test.did; test.goes {
					cancel()
				}
				return test.err
			})
			require.Equal(t, test.err == nil, succeeded)
			require.Equal(t, name != "it fails", one.working.Load())
			require.Equal(t, test.counts, r.Stats())
			if test.counts.Replica+test.counts.Failed > 0 {
				require.Equal(t, []string{fmt.Sprint("count 1ms ", test.err)}, measured)
			} else {
				require.Empty(t, measured)
			}
		})
	}
}

// TestReplicaGoes: a replica that the primary does not have any longer is neither asked nor probed.
func TestReplicaGoes(t *testing.T) {
	r, one, _ := unconnected(io.Discard)
	one.client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	watched, stop := context.WithCancel(t.Context())
	one.stop = stop
	r.known = []*replica{one}
	r.keep([]string{one.addr})
	require.Len(t, r.known, 1)
	require.NoError(t, watched.Err())
	r.keep(nil)
	require.Empty(t, r.known)
	require.ErrorIs(t, watched.Err(), context.Canceled)
	require.ErrorIs(t, one.client.Ping(t.Context()).Err(), redis.ErrClosed)
}
