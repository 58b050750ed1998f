package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
)

// userPath is where all contestants that are HTTP servers of ours are asked, so that routing costs the
// same.
const userPath = "/v1/namespaces/:namespace/users/:user"

// sample is an answer about a green user, for an endpoint that does nothing but send as much.
const sample = `{"user":"0123456789abcdef","status":"green","last_seen":"2026-11-20T22:00:00.123Z",` +
	`"left":false,"valid_until":"2026-11-20T22:01:00.123Z","as_of":"2026-11-20T22:00:00.123Z",` +
	`"green_ms":60000,"yellow_ms":300000}` + "\n"

// serve runs one of the servers that are measured: bare, which is Echo alone, or lastseen's interface on a
// store, with endpoints that do nothing beside the real ones.
func serve(ctx context.Context, args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	at := set.String("store", "", "file or redis:// URL; none for bare")
	merge := set.Bool("coalesce", false, "merge concurrent pings and lookups")
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
	defer runtime.KeepAlive(tuneCollector(*at))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := api.NewServer(handler, logger)
	fmt.Fprintf(stdout, "http://%s\n", listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
		err = server.Close()
	}
	return errors.Join(err, closeStore())
}

// bare is Echo without our middleware.
func bare() http.Handler {
	e := echo.New()
	e.POST(userPath+"/ping", nothing)
	return e
}

func nothing(c echo.Context) error { return c.NoContent(http.StatusNoContent) }

func fixed(c echo.Context) error { return c.JSONBlob(http.StatusOK, []byte(sample)) }

// full is lastseen's interface with its default settings.
func full(s store.Store, logger *slog.Logger) http.Handler {
	settings := api.Settings{
		Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
		PingInterval: 30 * time.Second, Shards: 1,
	}
	return api.New(api.Config{
		Store: s, Logger: logger, Settings: settings,
		Limits: limit.Limits{Caller: 5000, User: 20},
		Extra: []api.Endpoint{
			{Method: http.MethodPost, Path: userPath + "/nothing", Handle: nothing},
			{Method: http.MethodGet, Path: userPath + "/fixed", Handle: fixed},
		},
	})
}

// tuneCollector does what cmd/lastseen does for its garbage collector. Bare gets what a server on Redis does,
// with whose no-op it is compared: the ratio is about our middleware, not about the collector.
func tuneCollector(at string) (floor []byte) {
	if at != "" && !strings.Contains(at, "://") {
		debug.SetGCPercent(50)
		return nil
	}
	return make([]byte, 32<<20)
}

// openStore opens a store as cmd/lastseen does by default.
func openStore(at string, merge bool, logger *slog.Logger) (s store.Store, err error) {
	if strings.Contains(at, "://") {
		logging.Disable()
		s, err = redisstore.Open(redisstore.Options{URL: at, Logger: logger})
	} else {
		s, err = filestore.Open(filestore.Options{Path: at, Sync: filestore.DefaultSync, Logger: logger})
	}
	if err == nil && merge {
		s = coalesce.New(s, coalesce.Options{})
	}
	return s, err
}
