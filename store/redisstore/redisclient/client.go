// Package redisclient sends commands and scripts to one Redis, to the primary that Sentinels name, or to a Cluster. It
// fails fast while a server does not respond, can have replicas confirm writes, knows Redis' time, and translates
// errors into those of the contract of stores.
package redisclient

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
)

// Options selects a Redis and sets how it is used. All fields without a default are required.
type Options struct {
	URL          string        // of one Redis, of Sentinels or of a Cluster: see docs/decisions/redis-topologies.md
	ProbeKey     string        // is named by a script that writes nothing, and never written
	ClockKey     string        // Redis' time is that of the server which has it
	Timeout      time.Duration // of a command, connecting and retrying included
	DialTimeout  time.Duration // of one attempt to connect
	PoolSize     int           // connections at most, to each Redis; default 10 per processor, 5 in a Cluster
	MinIdleConns int           // connections kept open when idle, to each Redis; default 0
	MaxRetries   int           // times a call is repeated after a network error; -1 for none

	// Wait is the number of replicas that must confirm writes with the context of [Confirmed] within half of Timeout, 0
	// to [MaxWait]; default 0. Otherwise the write fails, and its outcome is unknown.
	Wait int

	Now       func() time.Time     // this machine's clock
	Monotonic func() time.Duration // time since some moment, unaffected by that clock
	Logger    *slog.Logger

	// Instrument, if set, adds hooks to the client before it is used.
	Instrument func(redis.UniversalClient) error
}

// Client sends commands to Redis. Its embedded client is that of the primaries: see [Client.Reader].
type Client struct {
	redis.UniversalClient
	Log      *OnceLogger
	Name     string        // of this Redis in logs: its URL without secrets
	Timeout  time.Duration // of a command
	Clock    *Clock        // Redis' clock
	Database int           // its number

	guard    *guard
	probeKey string

	evicts  atomic.Bool           // a server may evict any key when its memory is full
	status  atomic.Pointer[error] // why every call is refused, if it is; nil until the first server was checked
	closed  atomic.Bool
	life    context.Context //nolint:containedctx // it ends the work of Every
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// Open returns a client. It does not wait for Redis: until Redis responds, calls fail with [store.ErrUnavailable]. An
// error means that the options are invalid.
func Open(o Options) (*Client, error) {
	g := newGuard(o)
	client, a, err := newClient(o, g)
	if err != nil {
		return nil, err
	}
	if o.Instrument != nil {
		if err := o.Instrument(client); err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	life, stop := context.WithCancel(context.Background())
	c := &Client{
		UniversalClient: client, Log: g.log, Name: a.String(), Timeout: o.Timeout,
		Database: a.database, guard: g, probeKey: o.ProbeKey, life: life, stop: stop,
	}
	c.Clock = &Clock{
		Clock: clock.New(clock.Options{Name: "Redis", Monotonic: o.Monotonic, Logger: o.Logger}),
		local: o.Now, log: c.Log,
		sample: func(ctx context.Context) (time.Time, error) { return c.readTime(ctx, o.ClockKey) },
	}
	return c, nil
}

// Validate returns the error that [Open] would return for the options. It neither connects nor logs.
func (o Options) Validate() error {
	o.Logger = slog.New(slog.DiscardHandler)
	o.MinIdleConns = 0 // those are opened with the client
	client, _, err := newClient(o, newGuard(o))
	if err != nil {
		return err
	}
	return client.Close()
}

// Connections returns the number of connections to Redis now, and how many of them are idle.
func (c *Client) Connections() (total, idle int) {
	stats := c.PoolStats()
	return int(stats.TotalConns), int(stats.IdleConns)
}

// Closed reports whether Close was called.
func (c *Client) Closed() bool { return c.closed.Load() }

// Close ends background work and closes the connections.
func (c *Client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.stop()
	c.stopped.Wait()
	return c.UniversalClient.Close()
}

// Begin starts an operation and bounds it in time, however many round trips it makes. It refuses operations after Close
// and while a server is too old. The first one checks the servers.
func (c *Client) Begin(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc, error) {
	if c.closed.Load() {
		return nil, nil, store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	if err := c.refusal(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, cancel, nil
}

// Every calls work in the background, at once and then at every interval, until stop is called or the client is closed.
// The context of work ends then.
func (c *Client) Every(interval time.Duration, work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(c.life)
	c.stopped.Go(func() { Repeat(ctx, interval, work) })
	return cancel
}

// Repeat calls work at once and then at every interval, until the context ends.
func Repeat(ctx context.Context, every time.Duration, work func(context.Context)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		work(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// readerKey marks the context of reads that another client answers. Its value is that client.
type readerKey struct{}

// WithReader returns a context whose reads go to another client than the primaries'.
func WithReader(ctx context.Context, client redis.UniversalClient) context.Context {
	return context.WithValue(ctx, readerKey{}, client)
}

// Reader returns the client for reads with the context: that of [WithReader], or the primaries'.
func (c *Client) Reader(ctx context.Context) redis.UniversalClient {
	if other, ok := ctx.Value(readerKey{}).(redis.UniversalClient); ok {
		return other
	}
	return c.UniversalClient
}
