package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/tracing"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/observe"
	"github.com/lastseen/lastseen/store/redisstore"
)

// shutdownTimeout is how long requests in progress can take when the server accepts no more, together with the leaves
// that wait for their time. That is after draining for config.DrainTime or, while WebSockets are open, up to
// config.ConnectDrainTime if that is longer. 3 more seconds are for the last flush: with 2 seconds of draining, a stop
// takes at most 10 seconds, and with WebSockets and their 30 seconds 38.
const shutdownTimeout = 5 * time.Second

// serveCmd runs the service.
type serveCmd struct{ config.Settings }

// Run serves until the context ends, finishes the requests in progress, and flushes the store.
func (*serveCmd) Run(ctx context.Context, std cli.Streams, loader config.Loader) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c, err := loader.Load()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	logger := newLogger(c.LogFormat, std.Err, level)
	for _, warning := range c.Warnings {
		logger.Warn(warning)
	}
	// Before the store, which can create a file; connections wait until serve accepts them.
	listener, err := listen(c, "listen", c.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	operators, err := listenAdmin(c, logger)
	if err != nil {
		return err
	}
	if operators != nil {
		defer operators.Close()
	}
	traces, err := newTracing(ctx, c, logger)
	if err != nil {
		return err
	}
	defer traces.Close()
	registry := newRegistry(version())
	shared := api.NewShared(api.Config{
		Logger: logger, BodyMemory: c.BodyMemory, Metrics: registry, Version: version(),
	})
	s, where, err := openStore(ctx, c, logger, registry, shared.Telemetry.ObserveGap, traces)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(tuneGC(c.OnRedis()))
	running, err := newRuntimeConfig(c, dependencies{
		store: s, shared: shared, load: loader.Reload, logger: logger, level: level, metrics: registry,
		tracer: traces.Tracer(),
	})
	if err == nil {
		err = serve(ctx, std, listener, operators, running, where, hangups)
		running.close()
	}
	if closeErr := s.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("closing the store: %w", closeErr))
	}
	return err
}

// newTracing returns the tracing that the settings describe; nil if it is off.
func newTracing(ctx context.Context, c *config.Config, logger *slog.Logger) (*tracing.Tracing, error) {
	if c.TraceEndpoint == "" {
		return nil, nil //nolint:nilnil // a nil *tracing.Tracing makes no traces
	}
	return tracing.New(ctx, tracing.Options{
		Endpoint: c.TraceEndpoint, OneIn: c.TraceSampling, Version: version().Version, Logger: logger,
	})
}

// openStore opens the store that the settings name and returns where its data is. It registers the store's metrics. Gap
// is called with times between pings.
func openStore(
	ctx context.Context, c *config.Config, logger *slog.Logger, registerer prometheus.Registerer,
	gap func(string, time.Duration), traces *tracing.Tracing,
) (s store.Store, where string, err error) {
	metrics := storeMetrics{registerer}
	if !c.OnRedis() {
		s, err := filestore.Open(filestore.Options{
			Path: c.Store, Sync: c.Sync, MaxNamespaces: c.MaxNamespaces, Gap: gap, ObserveFlush: metrics.flushes(),
			Now: machineTime, Monotonic: clock.Monotonic, Logger: logger,
		})
		if err != nil {
			return nil, "", openError(c.Store, err)
		}
		return metrics.file(s), s.Path(), nil
	}
	logging.Disable() // the client's own log; what fails is in the errors, and logged with the request
	options := c.RedisOptions()
	options.Gap, options.Logger = gap, logger
	options.Now, options.Monotonic = machineTime, clock.Monotonic
	// A batch has the time of one call to Redis, so that no request waits longer than twice that.
	batches := coalesce.Options{Timeout: options.Timeout}
	if traces != nil {
		options.Instrument, batches.Trace = traces.Instrument, observe.TraceBatches(traces.Tracer())
	}
	calls := metrics.calls()
	options.ObserveReplica = calls.ObserveReplica
	redis, err := redisstore.Open(options)
	if err != nil {
		return nil, "", &config.Error{Problems: []string{err.Error()}} // load has found it before
	}
	if err := redis.Ready(ctx); errors.Is(err, redisstore.ErrTooOld) {
		return nil, "", errors.Join(err, redis.Close())
	} else if err != nil {
		logger.Warn("Redis is not ready; requests fail with 503 until it does", "error", err)
	} else {
		_ = redisstore.SetImporting(ctx, redis, false) // from now on, users there are not those of a copy alone
	}
	return metrics.batched(redis, calls, batches), redisstore.Redact(c.Store), nil
}

// openError adds what to do about a data file that cannot be opened.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, filestore.ErrLocked):
		return fmt.Errorf("%w; stop that process, or choose another --store", err)
	case errors.Is(err, filestore.ErrDamaged):
		return fmt.Errorf("%w; nothing was changed: restore %s from a backup, or move it away to start empty", err,
			path)
	case errors.Is(err, filestore.ErrOlder):
		return fmt.Errorf("%w; upgrade it with a version of lastseen in between, see the changelog", err)
	case errors.Is(err, filestore.ErrNewer):
		return fmt.Errorf("%w; run the version of lastseen that wrote it, or restore a backup from before the upgrade",
			err)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w; the folder must exist", err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; lastseen needs write permission on the file and its folder", err)
	default:
		return err
	}
}

// serve prints where the server is, and serves requests until the context ends.
func serve(
	ctx context.Context, std cli.Streams, clients, operators net.Listener, running *runtimeConfig, where string,
	hangups <-chan os.Signal,
) error {
	c, logger := running.config(), running.logger
	server := guard.NewServer(running, logger)
	most := maxConnections(c.MaxConnections, descriptors())
	if c.MaxWebsockets > most { // the process cannot open as many files
		logger.Warn("max-websockets is more than the number of connections: raise the limit of open files",
			"max_websockets", c.MaxWebsockets, "connections", most)
	}
	listener := guard.LimitConnections(server, clients, most, logger, running.metrics)
	stopAdmin := serveAdmin(ctx, operators, running)
	defer stopAdmin()
	stopJobs := running.startJobs(ctx, hangups)
	defer stopJobs()
	fmt.Fprintf(std.Out, "%s", banner{
		listen: listener.Addr(), tls: c.TLSCert != "", admin: operators, store: where,
		callers: c.Callers(),
	})

	failed := make(chan error, 1)
	go func() { failed <- serveConnections(server, listener, running.certificate) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if err := drain(running, time.After, failed); err != nil {
		return err
	}
	return shutdown(server, running.registry, logger)
}

// startJobs adds the configured namespaces to the store, and starts what runs in the background until the context ends;
// feeds and connections run longer. It returns a function that ends all of that and waits for it.
func (r *runtimeConfig) startJobs(ctx context.Context, hangups <-chan os.Signal) (stop func()) {
	names := func() []string { return r.config().Names() }
	registrar := jobs.NewRegistrar(r.store, names, r.changed, r.logger)
	registrar.Once(ctx)
	retention := jobs.NewRetention(r.store, jobs.RetentionRules{
		Users:      func(namespace string) time.Duration { return r.config().Namespace(namespace).Retention },
		Contacts:   func(namespace string) time.Duration { return r.config().Namespace(namespace).ContactsRetention },
		Configured: func(namespace string) bool { return r.config().Configured(namespace) },
	}, r.logger)
	storeMetrics{r.metrics}.retention(retention)

	// These go on while a server that was asked to stop finishes requests and waits for its connections: clients that
	// still follow changes get what they are owed.
	longer := context.WithoutCancel(ctx)
	stops := []func(){
		inBackground(ctx, retention.Run, registrar.Run, r.webhooks.Run,
			func(ctx context.Context) { r.run(ctx, hangups) }),
		inBackground(longer, r.shared.Listen),
		inBackground(longer, r.callManager.Run),
		inBackground(longer, r.registry.Run),
		inBackground(longer, r.feeds.hub.Run, r.feeds.watermarks.Run),
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// inBackground begins work that lasts until its context ends. It returns a function that ends it and waits for it.
func inBackground(ctx context.Context, work ...func(context.Context)) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, do := range work {
		all.Go(func() { do(running) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// drain lets load balancers and clients move to other servers, while requests are still served. WebSockets can have
// more time than requests; without any, drain does not wait for them. It returns an error if the server fails.
func drain(running *runtimeConfig, after func(time.Duration) <-chan time.Time, failed <-chan error) error {
	c, shared := running.config(), running.shared
	wait := c.DrainTime()
	running.logger.Info("stopping", "drain", wait, "websockets", shared.WebSockets())
	shared.Drain()
	if wait > 0 {
		select {
		case <-after(wait):
		case err := <-failed:
			return err
		}
	}
	return endWebSockets(shared, max(0, c.ConnectDrainTime()-wait), failed)
}

// serveConnections serves the connections of a listener, over TLS if there is a certificate.
func serveConnections(server *http.Server, listener net.Listener, c *certificate) error {
	if c == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = c.config()
	return server.ServeTLS(listener, "", "")
}

// shutdown accepts no new requests and waits for those in progress, and meanwhile writes the leaves that wait for their
// time: both up to shutdownTimeout.
func shutdown(server *http.Server, registry *connections.Registry, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	var leaves sync.WaitGroup
	leaves.Go(func() { registry.Stop(ctx) })
	defer leaves.Wait()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		logger.Warn("some requests took too long and were cut off")
		return server.Close()
	}
	return err
}

const (
	// gcBallast is the size of an allocation, in bytes, that makes the garbage collector run less often on a server
	// with a store on Redis. The collector runs when the heap has doubled; the heap of that server is so small that it
	// would run more than ten times a second under load. The ballast is never written, so it takes no memory.
	gcBallast = 32 << 20

	// filePercent is GOGC for a server with the embedded store, which holds the users in memory. With the default of
	// 100, millions of users would take as much memory again as garbage.
	filePercent = 50
)

// tuneGC sets up the garbage collector for the store, unless GOGC is set. The caller keeps the ballast alive while the
// server runs.
func tuneGC(onRedis bool) (ballast []byte) {
	switch {
	case os.Getenv("GOGC") != "":
		return nil
	case onRedis:
		return make([]byte, gcBallast)
	default:
		debug.SetGCPercent(filePercent)
		return nil
	}
}
