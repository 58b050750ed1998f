package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
)

// settingsBody is what bare returns: as many bytes as the settings of a namespace, which the no-op returns.
const settingsBody = `{"namespace":"0123456789abcdef","green_ms":60000,"yellow_ms":300000,` +
	`"ping_interval_ms":30000,"retention_ms":null,"contacts_retention_ms":null,"visibility":"everyone","shards":1,` +
	`"ring_timeout_ms":30000,"show_calls":false}` + "\n"

// serve runs one of the servers that are measured: bare, or lastseen's interface on a store.
func serve(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	at := set.String("store", "", "file or redis:// URL; omit for bare")
	address := set.String("listen", "127.0.0.1:0", "address")
	other := set.Bool("centrifuge", false, "serve connections with the library of Centrifugo instead")
	merge := set.Bool("coalesce", false, "merge concurrent pings and lookups, on Redis")
	if err := set.Parse(args); err != nil {
		return err
	}
	logger := slog.New(slog.DiscardHandler)
	handler, closeStore := bare(), func() error { return nil }
	if *at != "" {
		s, err := openStore(*at, *merge, logger)
		if err != nil {
			return err
		}
		handler, closeStore = full(s, logger), s.Close
	}
	if *other {
		var err error
		if handler, err = centrifugeServer(ctx); err != nil {
			return err
		}
	} else {
		defer runtime.KeepAlive(tuneGC(*at))
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	server := guard.NewServer(handler, logger)
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err = server.Serve(listener); errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, closeStore())
}

// bare returns Echo without lastseen's middleware. It has the route of the no-op, so that routing costs the same.
func bare() http.Handler {
	e := echo.New()
	e.GET("/v1/namespaces/:namespace", func(c echo.Context) error {
		return c.JSONBlob(http.StatusOK, []byte(settingsBody))
	})
	return e
}

// full returns lastseen's interface with its default settings.
func full(s store.Store, logger *slog.Logger) http.Handler {
	settings := api.Settings{
		Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
		PingInterval: 30 * time.Second, Shards: 1,
	}
	return api.New(api.Config{
		Store: s, Logger: logger, Settings: settings,
		Limits: limit.Limits{Caller: 5000, User: 20},
	})
}

// tuneGC sets the garbage collector as cmd/lastseen does. Bare gets the settings of a server on Redis, with whose no-op
// it is compared, so that the ratio shows the cost of the middleware only.
func tuneGC(at string) (ballast []byte) {
	if at != "" && !strings.Contains(at, "://") {
		debug.SetGCPercent(50)
		return nil
	}
	return make([]byte, 32<<20)
}

// openStore opens a store as cmd/lastseen does by default.
func openStore(at string, merge bool, logger *slog.Logger) (store.Store, error) {
	if !strings.Contains(at, "://") {
		return filestore.Open(filestore.Options{Path: at, Sync: time.Second, Logger: logger})
	}
	logging.Disable()
	s, err := redisstore.Open(redisstore.Options{URL: at, Logger: logger})
	if err != nil || !merge {
		return s, err
	}
	return coalesce.New(s, coalesce.Options{}), nil
}
