package redisclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// guard wraps all commands of a client: a circuit breaker for each server fails them at once while the server does not
// respond, and WAIT follows writes if replicas have to confirm them.
type guard struct {
	*breakers
	waits
	timeout time.Duration
	name    string // of the primary that Sentinels name, until its address is known
}

func newGuard(o Options) *guard {
	return &guard{
		breakers: newBreakers(o), waits: waits{replicas: o.Wait, atMost: o.Timeout / 2},
		timeout: o.Timeout, name: Redact(o.URL),
	}
}

// attach adds the guard to a client. In a Cluster it is added to each node, so that an open breaker fails only the
// commands for that node, and the client follows redirects as always.
func (g *guard) attach(client redis.UniversalClient) {
	switch c := client.(type) {
	case *redis.ClusterClient:
		c.OnNewNode(func(node *redis.Client) {
			// A dead primary cannot redirect: the client has to ask the others who replaced it.
			onOpen := func() { c.ReloadState(context.Background()) }
			node.AddHook(g.hook(node, node.Options().Addr, onOpen))
		})
	case *redis.Client:
		c.AddHook(g.hook(c, c.Options().Addr, func() {}))
	}
}

// attachSentinel is attach for the client of a primary that Sentinels name.
func (g *guard) attachSentinel(client *redis.Client) {
	// Connecting asks the Sentinels, but an idle connection to the old primary would be used first.
	h := g.hook(client, g.name, func() { g.tryIdle(client) })
	h.follow = true
	client.AddHook(h)
}

// tryIdle uses all idle connections of a client, which closes those that do not work.
func (g *guard) tryIdle(client *redis.Client) {
	ctx, cancel := context.WithTimeout(inside(context.Background()), g.timeout)
	defer cancel()
	var trying sync.WaitGroup
	for range client.PoolStats().IdleConns {
		trying.Go(func() { _ = client.Ping(ctx).Err() })
	}
	trying.Wait()
}

func (g *guard) hook(client *redis.Client, addr string, onOpen func()) *hook {
	h := &hook{guard: g, client: client, onOpen: onOpen}
	h.addr.Store(&addr)
	return h
}

// hook is a guard of one client, which has one server at a time.
type hook struct {
	*guard
	client *redis.Client
	addr   atomic.Pointer[string] // of the server
	follow bool                   // the address is that of the last connection
	onOpen func()

	handshake atomic.Pointer[error] // of TLS, if the last one failed: why calls time out
}

// DialHook implements [redis.Hook]. A server without TLS does not answer a handshake, and the calls that wait for it
// time out: so the hook remembers why. A new primary gets a new breaker, so that the old one does not delay calls.
func (h *hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			if errors.Is(err, errHandshake) {
				h.handshake.Store(&err)
			}
			return nil, err
		}
		h.handshake.Store(nil)
		if !h.follow {
			return conn, nil
		}
		current := conn.RemoteAddr().String()
		if last := *h.addr.Swap(&current); last != current {
			h.drop(last)
		}
		return conn, nil
	}
}

// ProcessHook implements [redis.Hook].
func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch {
		case isInside(ctx):
			return next(ctx, cmd)
		case h.replicas > 0 && isConfirmed(ctx): // WAIT has to use the same connection
			pipe := h.client.Pipeline()
			_ = pipe.Process(ctx, cmd)
			_, _ = pipe.Exec(ctx)
			return cmd.Err()
		default:
			err := h.run(ctx, h.breaker(cmd), func(ctx context.Context) error { return next(ctx, cmd) })
			return h.explain(err)
		}
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if isInside(ctx) {
			return next(ctx, cmds)
		}
		sent, wait := cmds, (*redis.IntCmd)(nil)
		if h.replicas > 0 && isConfirmed(ctx) {
			sent, wait = h.withWait(ctx, cmds)
		}
		err := h.explain(h.run(ctx, h.breaker(cmds[0]), func(ctx context.Context) error { return next(ctx, sent) }))
		switch {
		case errors.Is(err, errOpen):
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		case wait != nil:
			return h.check(cmds, wait, err)
		}
		return err
	}
}

// explain adds why the last TLS handshake failed to an error that is not a reply of Redis.
func (h *hook) explain(err error) error {
	cause := h.handshake.Load()
	if err == nil || cause == nil || ReplyError(err) != "" || errors.Is(err, errHandshake) {
		return err
	}
	return fmt.Errorf("%w: %w", err, *cause)
}

// breaker returns the breaker for a command.
func (h *hook) breaker(cmd redis.Cmder) *breaker {
	return h.of(*h.addr.Load(), cmd.Name() != "cluster", h.onOpen)
}

// insideKey marks the context of commands that pass without a breaker: they are part of one that it let through.
type insideKey struct{}

func inside(ctx context.Context) context.Context { return context.WithValue(ctx, insideKey{}, true) }

func isInside(ctx context.Context) bool { return ctx.Value(insideKey{}) != nil }

// repeatHook has the client of a Cluster repeat only those commands of a pipeline that failed. By itself, go-redis
// sends all commands for a node again, also those that succeeded, if the connection is lost or Redis refuses the first
// one. It still follows redirections. After TRYAGAIN, those who run scripts repeat them.
type repeatHook struct{ retries int }

func (repeatHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (repeatHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// onceCmd is a command whose pipeline go-redis does not repeat.
type onceCmd struct{ redis.Cmder }

func (onceCmd) NoRetry() bool { return true }

// ProcessPipelineHook implements [redis.Hook].
func (h repeatHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		open := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			open[i] = onceCmd{cmd}
		}
		for run := 0; len(open) > 0 && (run == 0 || store.Pause(ctx, RepeatPause)); run++ {
			_ = next(ctx, open) // each command keeps its error
			open = slices.DeleteFunc(open, func(cmd redis.Cmder) bool {
				err := cmd.Err()
				broken, ok := errors.AsType[*net.OpError](err)
				isLost := errors.Is(err, io.EOF) || ok && broken.Op != "dial"
				return run >= h.retries || !isLost && !redis.HasErrorPrefix(err, "CLUSTERDOWN")
			})
		}
		return FirstError(cmds)
	}
}

// RepeatPause is the time before something is sent again.
const RepeatPause = 10 * time.Millisecond
