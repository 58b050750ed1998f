package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"

	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/admin"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

// listenAdmin opens the admin address in the settings; nil if it is off. If the default address is in use, as by
// another lastseen on this machine, the server runs without one.
func listenAdmin(c *config.Config, logger *slog.Logger) (net.Listener, error) {
	if c.AdminListen == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	listener, err := listen(c, "admin-listen", c.AdminListen)
	if errors.Is(err, syscall.EADDRINUSE) && c.IsDefault("admin-listen") {
		logger.Warn("another program uses the admin address, so there are no metrics and backups; "+
			"set --admin-listen to a free address, or to off", "address", c.AdminListen)
		return nil, nil //nolint:nilnil // there is none
	}
	return listener, err
}

// serveAdmin serves operators in the background until the listener is closed, and counts users for them. It returns a
// function that ends both.
func serveAdmin(ctx context.Context, listener net.Listener, running *runtimeConfig) (stop func()) {
	if listener == nil {
		return func() {}
	}
	stopCounting := inBackground(ctx, running.countUsers)
	server := admin.NewServer(admin.Config{
		Gatherer: running.metrics, Ready: running.ready, Backup: running.backup(), Logger: running.logger,
		AllowsHost: func(host string) bool { return running.config().AllowsOperators(host) },
	})
	limited := guard.LimitConnections(server, listener, admin.MaxConnections, running.logger, nil)
	go func() {
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			running.logger.Error("the admin listener failed; there are no metrics until a restart", "error", err)
		}
	}()
	return func() {
		_ = server.Close() // operators' requests do not delay the end
		stopCounting()
	}
}

// errDraining means that the server is about to end.
var errDraining = errors.New("shutting down")

// ready returns nil if the server can serve requests.
func (r *runtimeConfig) ready(ctx context.Context) error {
	if r.shared.Draining() {
		return errDraining
	}
	return r.store.Ready(ctx)
}

// backup returns what writes a backup of the store; nil if it is a Redis.
func (r *runtimeConfig) backup() func(context.Context, io.Writer) error {
	if file, ok := store.As[*filestore.Store](r.store); ok {
		return file.Backup
	}
	return nil
}
