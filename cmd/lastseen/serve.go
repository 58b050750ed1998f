package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/boltstore"
	"github.com/lastseen/lastseen/store/redisstore"
)

// drainTimeout is how long requests under way may take after the order to stop. What is left of 10
// seconds is for the last flush.
const drainTimeout = 7 * time.Second

// serveCmd runs the service.
type serveCmd struct {
	settings `embed:""`
}

// Run serves until the context ends, finishes what was begun, and flushes.
func (c *serveCmd) Run(ctx context.Context, std streams) error {
	if err := c.validate(); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(std.err, nil))
	if c.Green < 2*c.PingInterval {
		logger.Warn("green is less than two ping intervals: a single lost ping turns users yellow",
			"green", time.Duration(c.Green).String(), "ping_interval", time.Duration(c.PingInterval).String())
	}
	s, where, err := c.openStore(ctx, logger)
	if err != nil {
		return err
	}
	err = c.serve(ctx, std, logger, s, where)
	if closeErr := s.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("closing the store: %w", closeErr))
	}
	return err
}

// openStore opens the store that the settings name and says where its data is.
func (c *serveCmd) openStore(ctx context.Context, logger *slog.Logger) (s store.Store, where string, err error) {
	if !c.onRedis() {
		s, err := boltstore.Open(boltstore.Options{Path: c.Store, Sync: time.Duration(c.Sync), Logger: logger})
		if err != nil {
			return nil, "", openError(c.Store, err)
		}
		return s, s.Path(), nil
	}
	logging.Disable() // the client's own log; what fails is in the errors, and logged with the request
	r := c.Redis
	maxRetries := r.MaxRetries
	if maxRetries == 0 {
		maxRetries = -1 // zero would mean the client's default
	}
	redis, err := redisstore.Open(redisstore.Options{
		URL: c.Store, Prefix: r.Prefix, Shards: r.Shards,
		Timeout: time.Duration(r.Timeout), DialTimeout: time.Duration(r.DialTimeout),
		PoolSize: r.PoolSize, MinIdleConns: r.MinIdleConns, MaxRetries: maxRetries, Logger: logger,
	})
	if err != nil {
		return nil, "", wrongSetting("--store: %v", err)
	}
	if err := redis.Ready(ctx); errors.Is(err, redisstore.ErrTooOld) {
		return nil, "", errors.Join(err, redis.Close())
	} else if err != nil {
		logger.Warn("Redis does not answer yet; requests fail with 503 until it does", "error", err)
	}
	return redis, redisstore.Redact(c.Store), nil
}

// openError adds what to do about a data file that cannot be opened.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, boltstore.ErrLocked):
		return fmt.Errorf("%w; stop that process, or choose another --store", err)
	case errors.Is(err, boltstore.ErrDamaged):
		return fmt.Errorf("%w; nothing was changed: restore %s from a backup, or move it away to start empty", err, path)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w; the folder has to exist", err)
	default:
		return err
	}
}

// serve listens, says where, and answers requests until the context ends.
func (c *serveCmd) serve(ctx context.Context, std streams, logger *slog.Logger, s store.Store, where string) error {
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	handler := api.New(api.Config{Store: s, Settings: c.namespace, Version: version(), Logger: logger})
	server := api.NewServer(handler, logger)
	fmt.Fprintf(std.out, "lastseen %s\n  API   http://%s/v1/namespaces\n  data  %s\n", version().Version, listener.Addr(), where)

	if c.Retention > 0 {
		j := &janitor{store: s, retention: time.Duration(c.Retention), logger: logger, pause: sleep}
		sweeping, stop := context.WithCancel(ctx)
		var swept sync.WaitGroup
		defer swept.Wait()
		defer stop()
		swept.Go(func() { j.run(sweeping) })
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return shutdown(server, logger)
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
