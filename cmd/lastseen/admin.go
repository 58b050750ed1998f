package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/admin"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

// adminListener is the address for operators. It is nil if it is off.
type adminListener struct {
	net.Listener
	logger *slog.Logger
}

// listenAdmin opens the admin address in the settings; nil if it is off. If the default address is in use, as by
// another lastseen on this machine, the server runs without one.
func listenAdmin(c *config.Config, logger *slog.Logger) (*adminListener, error) {
	if c.AdminListen == "" {
		return nil, nil //nolint:nilnil // see adminListener
	}
	listener, err := listenOn(c.AdminListen, c.Source("admin-listen"), "admin-listen")
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && c.IsDefault("admin-listen"):
		logger.Warn("there are no metrics: the default admin address is in use; set --admin-listen to another one, "+
			"or to off", "address", c.AdminListen)
		return nil, nil //nolint:nilnil // see adminListener
	case err != nil:
		return nil, err
	}
	return &adminListener{listener, logger}, nil
}

// address returns the address; nil if it is off.
func (a *adminListener) address() net.Addr {
	if a == nil {
		return nil
	}
	return a.Addr()
}

// close closes the port.
func (a *adminListener) close() {
	if a != nil {
		_ = a.Close() // again, if the server ran
	}
}

// serve serves operators in the background until the listener is closed, and counts users for them. It returns a
// function that ends both.
func (a *adminListener) serve(ctx context.Context, running *runtimeConfig) (stop func()) {
	if a == nil {
		return func() {}
	}
	stopCounting := inBackground(ctx, running.countUsers)
	server := admin.NewServer(admin.Config{
		Gatherer: running.metrics, Ready: running.ready, Backup: running.backup(), Logger: a.logger,
		AllowsHost: func(host string) bool { return running.config().AllowsOperators(host) },
	})
	limited := api.LimitConnections(server, a, admin.MaxConnections, a.logger, nil)
	go func() {
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			a.logger.Error("the admin listener failed; there are no metrics until a restart", "error", err)
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
