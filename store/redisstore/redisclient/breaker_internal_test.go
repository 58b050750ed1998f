package redisclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// guardBench is a hook whose commands end as a test says, in a bubble with its own clock.
type guardBench struct {
	*testing.T
	hook *hook
	log  strings.Builder
	sent int   // commands and pipelines that were not refused
	err  error // their error
	wait time.Duration
	open int // how often the breaker opened
}

// sinceNow returns a monotonic clock.
func sinceNow() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}

func withGuard(t *testing.T, test func(b *guardBench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &guardBench{T: t}
		g := newGuard(Options{
			Timeout: time.Second, Logger: slog.New(slog.NewTextHandler(&b.log, nil)), Monotonic: sinceNow(),
		})
		b.hook = g.hook(nil, "redis:6379", func() { b.open++ })
		test(b)
	})
}

func (b *guardBench) answer() error {
	b.sent++
	time.Sleep(b.wait)
	return b.err
}

// call sends a command and returns its error.
func (b *guardBench) call() error {
	process := b.hook.ProcessHook(func(context.Context, redis.Cmder) error { return b.answer() })
	return process(context.Background(), redis.NewStatusCmd(context.Background(), "ping"))
}

// fail sends commands that fail.
func (b *guardBench) fail(n int) {
	b.err = io.EOF
	for range n {
		require.ErrorIs(b, b.call(), io.EOF)
	}
	synctest.Wait()
}

func (b *guardBench) state() BreakerState {
	states := b.hook.states()
	require.Len(b, states, 1)
	require.Equal(b, "redis:6379", states[0].Server)
	return states[0].State
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	withGuard(t, func(b *guardBench) {
		b.fail(maxConsecutive - 1)
		require.Equal(b, BreakerClosed, b.state())
		b.fail(1)
		require.Equal(b, BreakerOpen, b.state())
		require.Equal(b, 1, b.open)
		sent := b.sent
		require.ErrorIs(b, Translate(b.call()), errOpen)
		require.ErrorContains(b, b.call(), "redis:6379")
		require.Equal(b, sent, b.sent, "nothing is sent")
		for range 3 { // probes that fail
			time.Sleep(openFor + 1)
			require.Equal(b, BreakerProbing, b.state())
			b.fail(1)
			require.Equal(b, BreakerOpen, b.state())
			require.ErrorIs(b, b.call(), errOpen)
		}
		time.Sleep(openFor + 1)
		b.err = nil
		require.NoError(b, b.call())
		require.Equal(b, BreakerClosed, b.state())
		require.NoError(b, b.call())
		require.Equal(b, int64(1), b.hook.opened.Load())
		require.Equal(b, 1, strings.Count(b.log.String(), "circuit breaker opened"))
		require.Equal(b, 1, strings.Count(b.log.String(), "circuit breaker closed"))
		require.Equal(b, 2, strings.Count(b.log.String(), "\n"))
	})
}

// TestOneProbe checks that others are refused while a probe waits, and that a probe without a verdict gives way to the
// next one.
func TestOneProbe(t *testing.T) {
	withGuard(t, func(b *guardBench) {
		b.fail(maxConsecutive)
		time.Sleep(openFor + 1)
		b.wait, b.err = time.Second, context.Canceled
		probed := make(chan error, 1)
		go func() { probed <- b.call() }()
		synctest.Wait()
		require.ErrorIs(b, b.call(), errOpen)
		require.ErrorIs(b, <-probed, context.Canceled)
		require.Equal(b, BreakerProbing, b.state())
		b.err = nil
		require.NoError(b, b.call())
		require.Equal(b, BreakerClosed, b.state())
	})
}

// TestBreakerWithALongTimeout checks that calls count that each take longer than the usual window.
func TestBreakerWithALongTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &guardBench{T: t, wait: time.Minute}
		g := newGuard(Options{Timeout: b.wait, Logger: slog.New(slog.DiscardHandler), Monotonic: sinceNow()})
		b.hook = g.hook(nil, "redis:6379", func() {})
		b.err = context.DeadlineExceeded
		for range 2*maxConsecutive - 1 { // a window can begin in between
			_ = b.call()
		}
		require.EqualValues(t, 1, g.opened.Load())
	})
}

// TestBreakerOpensOnManyFailures checks the ratio: failures that are never many in a row.
func TestBreakerOpensOnManyFailures(t *testing.T) {
	withGuard(t, func(b *guardBench) {
		for n := 2; n < minOutcomes; n += 2 {
			b.err = nil
			require.NoError(b, b.call())
			b.fail(1)
			require.Equal(b, BreakerClosed, b.state(), n)
		}
		b.err = nil
		require.NoError(b, b.call())
		b.fail(1)
		require.Equal(b, BreakerOpen, b.state())
	})
}

func TestVerdict(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	b := newBreakers(Options{Timeout: time.Second})
	for _, c := range []struct {
		err    error
		waited time.Duration
		want   string
	}{
		{nil, time.Hour, "works"},
		{redis.Nil, 0, "works"},
		{redis.ErrNoScript, 0, "works"},
		{replyOf("MOVED 1 127.0.0.1:1"), 0, "works"},
		{replyOf("LOADING Redis is loading the dataset in memory"), 0, "works"},
		{replyOf("OOM command not allowed"), 0, "works"},
		{context.Canceled, time.Second, "unknown"},
		{fmt.Errorf("wrapped: %w", redis.ErrPoolTimeout), time.Second, "unknown"},
		{redis.ErrClosed, 0, "unknown"},
		{context.DeadlineExceeded, 249 * time.Millisecond, "unknown"}, // the caller's
		{timeout, 249 * time.Millisecond, "unknown"},
		{context.DeadlineExceeded, 250 * time.Millisecond, "fails"},
		{timeout, 250 * time.Millisecond, "fails"},
		{io.EOF, 0, "fails"},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, 0, "fails"},
	} {
		got := b.verdict(c.err, c.waited)
		name := map[bool]string{true: "works", false: "fails"}[got == nil]
		if errors.Is(got, errNoVerdict) {
			name = "unknown"
		}
		require.Equal(t, c.want, name, c.err)
	}
}

type replyOf string

func (r replyOf) Error() string { return string(r) }
func (replyOf) RedisError()     {}

// TestRefusedPipeline checks that no command of a pipeline that was never sent looks as if it had succeeded.
func TestRefusedPipeline(t *testing.T) {
	withGuard(t, func(b *guardBench) {
		b.fail(maxConsecutive)
		send := b.hook.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return b.answer() })
		ctx, sent := context.Background(), b.sent
		cmds := []redis.Cmder{redis.NewIntCmd(ctx, "zrem"), redis.NewIntCmd(ctx, "zrem")}
		require.ErrorIs(b, send(ctx, cmds), errOpen)
		for _, cmd := range cmds {
			require.ErrorIs(b, cmd.Err(), errOpen)
		}
		require.Equal(b, sent, b.sent)
	})
}

// TestHandshakeOfAProbe checks that the commands which begin a new connection are part of the probe that needs it.
func TestHandshakeOfAProbe(t *testing.T) {
	withGuard(t, func(b *guardBench) {
		b.fail(maxConsecutive)
		time.Sleep(openFor + 1)
		b.err = nil
		hello := b.hook.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
		outer := b.hook.ProcessHook(func(ctx context.Context, cmd redis.Cmder) error { return hello(ctx, cmd) })
		require.NoError(b, outer(context.Background(), redis.NewStatusCmd(context.Background(), "ping")))
		require.Equal(b, BreakerClosed, b.state())
	})
}

// TestProbeThatPanics checks that a panic does not leave a breaker waiting for an outcome.
func TestProbeThatPanics(t *testing.T) {
	withGuard(t, func(b *guardBench) {
		b.fail(maxConsecutive)
		time.Sleep(openFor + 1)
		process := b.hook.ProcessHook(func(context.Context, redis.Cmder) error { panic("probe") })
		cmd := redis.NewStatusCmd(context.Background(), "ping")
		require.Panics(b, func() { _ = process(context.Background(), cmd) })
		b.err = nil
		require.NoError(b, b.call())
	})
}

// TestBreakersAreForgotten checks that servers which are no longer used do not add up.
func TestBreakersAreForgotten(t *testing.T) {
	withGuard(t, func(b *guardBench) {
		for n := range 1000 {
			b.hook.of(fmt.Sprint("old", n), true, func() {})
		}
		b.hook.of("asked for slots", false, func() {})
		require.Len(b, b.hook.states(), 1000)
		time.Sleep(forgetAfter + 1)
		require.NoError(b, b.call())
		require.Len(b, b.hook.byAddr, 1)
		require.Equal(b, BreakerClosed, b.state())
	})
}

// TestNewPrimary checks that the breaker of an old primary does not refuse calls to a new one.
func TestNewPrimary(t *testing.T) {
	withGuard(t, func(b *guardBench) {
		b.hook.follow = true
		address := "10.0.0.1:1"
		dial := b.hook.DialHook(func(context.Context, string, string) (net.Conn, error) {
			return addressed{addr: address}, nil
		})
		connect := func() {
			_, err := dial(context.Background(), "tcp", "ignored")
			require.NoError(b, err)
		}
		connect()
		b.fail(maxConsecutive)
		require.Equal(b, []Breaker{{"10.0.0.1:1", BreakerOpen}}, b.hook.states())
		connect()
		require.ErrorIs(b, b.call(), errOpen, "it is the same server")
		address = "10.0.0.2:1"
		connect()
		b.err = nil
		require.NoError(b, b.call())
		require.Equal(b, []Breaker{{"10.0.0.2:1", BreakerClosed}}, b.hook.states())
	})
}

// addressed is a connection to an address.
type addressed struct {
	net.Conn

	addr string
}

func (a addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.addr))
}
