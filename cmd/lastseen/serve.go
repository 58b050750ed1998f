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
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/redisstore"
)

// drainTimeout is how long requests in progress can take after the signal to stop. The rest of 10 seconds is for the
// last flush.
const drainTimeout = 7 * time.Second

// serveCmd runs the service.
type serveCmd struct{ config.Settings }

// Run serves until the context ends, finishes the requests in progress, and flushes the store.
func (*serveCmd) Run(ctx context.Context, std streams, loader config.Loader) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c, err := loader.Load()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	logger := newLogger(c.LogFormat, std.err, level)
	for _, warning := range c.Warnings {
		logger.Warn(warning)
	}
	listener, err := listen(c) // before the store, which can create a file; connections wait until serve accepts them
	if err != nil {
		return err
	}
	defer listener.Close()
	s, where, err := openStore(ctx, c, logger)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(tuneGC(c.OnRedis()))
	running, err := newRuntimeConfig(c, loader.Reload, s, logger, level)
	if err == nil {
		err = serve(ctx, std, listener, running, where, hangups)
		running.close()
	}
	if closeErr := s.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("closing the store: %w", closeErr))
	}
	logTraffic(s, logger)
	return err
}

// openStore opens the store that the settings name and returns where its data is.
func openStore(ctx context.Context, c *config.Config, logger *slog.Logger) (s store.Store, where string, err error) {
	if !c.OnRedis() {
		s, err := filestore.Open(filestore.Options{
			Path: c.Store, Sync: c.Sync, MaxNamespaces: c.MaxNamespaces, Logger: logger,
		})
		if err != nil {
			return nil, "", openError(c.Store, err)
		}
		return s, s.Path(), nil
	}
	logging.Disable() // the client's own log; what fails is in the errors, and logged with the request
	options := c.RedisOptions()
	options.Logger = logger
	redis, err := redisstore.Open(options)
	if err != nil {
		return nil, "", &config.Error{Problems: []string{err.Error()}} // load has found it before
	}
	if err := redis.Ready(ctx); errors.Is(err, redisstore.ErrTooOld) {
		return nil, "", errors.Join(err, redis.Close())
	} else if err != nil {
		logger.Warn("Redis does not respond yet; requests fail with 503 until it does", "error", err)
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
	ctx context.Context, std streams, listener net.Listener, running *runtimeConfig, where string,
	hangups <-chan os.Signal,
) error {
	c, logger := running.config(), running.logger
	server := api.NewServer(running, logger)
	listener = api.LimitConnections(server, listener, maxConnections(c.MaxConnections, descriptors()), logger)
	names := func() []string { return running.config().Names() }
	registrar := jobs.NewRegistrar(running.store, names, running.changed, logger)
	registrar.Once(ctx)
	fmt.Fprintf(std.out, "%s", banner(listener.Addr(), c.TLSCert != "", where, c.Callers()))

	keep := func(namespace string) time.Duration { return running.config().Namespace(namespace).Retention }
	configured := func(namespace string) bool { return running.config().Configured(namespace) }
	retention := jobs.NewRetention(running.store, keep, configured, logger)
	background, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { retention.Run(background) })
	work.Go(func() { registrar.Run(background) })
	work.Go(func() { running.run(background, hangups) })
	defer work.Wait()
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- serveConnections(server, listener, running.certificate) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return shutdown(server, logger)
}

// serveConnections serves the connections of a listener, over TLS if there is a certificate.
func serveConnections(server *http.Server, listener net.Listener, c *certificate) error {
	if c == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = c.config()
	return server.ServeTLS(listener, "", "")
}

// shutdown accepts no new requests and waits up to drainTimeout for those in progress.
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
