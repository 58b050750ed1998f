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
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/redisstore"
)

// drainTimeout is how long requests under way may take after the order to stop. What is left of 10
// seconds is for the last flush.
const drainTimeout = 7 * time.Second

// serveCmd runs the service.
type serveCmd struct {
	settings
}

// Run serves until the context ends, finishes what was begun, and flushes.
func (*serveCmd) Run(ctx context.Context, std streams, from sources) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c, err := from.load()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(slog.Level(c.LogLevel))
	logger := c.LogFormat.newLogger(std.err, level)
	for _, warning := range c.warnings {
		logger.Warn(warning)
	}
	listener, err := listen(c) // before the store, which may make a file; connections wait until serve accepts them
	if err != nil {
		return err
	}
	defer listener.Close()
	s, where, err := openStore(ctx, c, logger)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(tuneCollector(c.onRedis()))
	live, err := newLive(c, from.reload, logger, level)
	if err == nil {
		err = serve(ctx, std, logger, listener, s, where, live, hangups)
		live.close()
	}
	if closeErr := s.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("closing the store: %w", closeErr))
	}
	newTraffic(s, logger).sum()
	return err
}

// openStore opens the store that the settings name and says where its data is.
func openStore(ctx context.Context, c *config, logger *slog.Logger) (s store.Store, where string, err error) {
	if !c.onRedis() {
		s, err := filestore.Open(filestore.Options{
			Path: c.Store, Sync: time.Duration(c.Sync), MaxNamespaces: c.MaxNamespaces, Logger: logger,
		})
		if err != nil {
			return nil, "", openError(c.Store, err)
		}
		return s, s.Path(), nil
	}
	logging.Disable() // the client's own log; what fails is in the errors, and logged with the request
	options := c.redisOptions()
	options.Logger = logger
	redis, err := redisstore.Open(options)
	if err != nil {
		return nil, "", &settingsError{[]string{err.Error()}} // load has found it before
	}
	if err := redis.Ready(ctx); errors.Is(err, redisstore.ErrTooOld) {
		return nil, "", errors.Join(err, redis.Close())
	} else if err != nil {
		logger.Warn("Redis does not answer yet; requests fail with 503 until it does", "error", err)
	}
	// A batch has the time of one call to Redis, so that no request waits longer than twice that.
	return coalesce.New(redis, coalesce.Options{Timeout: options.Timeout}), redisstore.Redact(c.Store), nil
}

// openError adds what to do about a data file that cannot be opened.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, filestore.ErrLocked):
		return fmt.Errorf("%w; stop that process, or choose another --store", err)
	case errors.Is(err, filestore.ErrDamaged):
		return fmt.Errorf("%w; nothing was changed: restore %s from a backup, or move it away to start empty", err, path)
	case errors.Is(err, filestore.ErrOlder):
		return fmt.Errorf("%w; upgrade it with a version of lastseen in between, see the changelog", err)
	case errors.Is(err, filestore.ErrNewer):
		return fmt.Errorf("%w; run the version of lastseen that wrote it, or restore a backup from before the upgrade", err)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w; the folder must exist", err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; lastseen needs write permission on the file and its folder", err)
	default:
		return err
	}
}

// serve says where the service is, and answers requests until the context ends.
func serve(ctx context.Context, std streams, logger *slog.Logger, listener net.Listener, s store.Store, where string, live *live, hangups <-chan os.Signal) error {
	server := api.NewServer(api.New(live.interfaceTo(s)), logger)
	listener = api.LimitConnections(server, listener, live.config().MaxConnections.most(descriptors()), logger)
	registrar := jobs.NewRegistrar(s, live.names, live.changed, logger)
	registrar.Once(ctx)
	fmt.Fprintf(std.out, "%s", banner{live.scheme(), listener.Addr(), where, live.config().callers()})

	retention := jobs.NewRetention(s, live.retention, live.configured, logger)
	defer inBackground(ctx, retention.Run, registrar.Run, newTraffic(s, logger).run,
		func(ctx context.Context) { live.run(ctx, hangups) },
		func(ctx context.Context) { live.shown.run(ctx, sleep) })()
	failed := make(chan error, 1)
	go func() { failed <- answer(server, listener, live.shown) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return shutdown(server, logger)
}

// answer answers requests, over TLS if there is a certificate to show.
func answer(server *http.Server, listener net.Listener, shown *certificate) error {
	if shown == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = shown.config()
	return server.ServeTLS(listener, "", "")
}

// inBackground starts work that goes on until the context ends. The function that it returns ends the work
// and waits for that.
func inBackground(ctx context.Context, work ...func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, f := range work {
		running.Go(func() { f(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// shutdown takes no new requests and waits for those under way, but not for ever.
func shutdown(server *http.Server, logger *slog.Logger) error {
	logger.Info("stopping")
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		logger.Warn("some requests took too long and were cut off")
		return server.Close()
	}
	return err
}
