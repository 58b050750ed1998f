package apitest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// NewGuardedServer serves a store to authenticated callers, and returns the Authorization headers of [kit.Callers].
func NewGuardedServer(t *testing.T) (*Server, map[string]string) {
	t.Helper()
	authenticator, headers := kit.Callers(t)
	return NewAuthServer(t, kit.FileStore(t), authenticator), headers
}

// NewAuthServer serves a store to authenticated callers.
func NewAuthServer(t *testing.T, s store.Store, authenticator *auth.Authenticator) *Server {
	t.Helper()
	return NewServer(t, s, func(c *api.Config) { c.Auth = authenticator })
}

// NewLimitedServer serves a store with the limits of a real server.
func NewLimitedServer(t *testing.T) *Server {
	t.Helper()
	w := NewServer(t, kit.FileStore(t))
	server := httptest.NewUnstartedServer(nil)
	handler := api.New(api.Config{Store: w.Store, Settings: Settings()})
	server.Config = guard.NewServer(handler, slog.New(slog.DiscardHandler))
	server.Start()
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}

// EachStore runs a test on both stores.
func EachStore(t *testing.T, test func(*testing.T, *Server)) {
	t.Helper()
	t.Run("file", func(t *testing.T) { test(t, NewServer(t, kit.FileStore(t))) })
	t.Run("redis", func(t *testing.T) { test(t, NewServer(t, kit.RedisStore(t, redistest.Start(t), kit.Sharded))) })
}

// NewVisibleServer serves a store whose users are visible to their contacts, and returns the Authorization headers of
// callers: see [kit.Callers].
func NewVisibleServer(t *testing.T, s store.Store, changes ...func(*api.Config)) (*Server, map[string]string) {
	t.Helper()
	authenticator, headers := kit.Callers(t)
	changes = append([]func(*api.Config){ToContacts, func(c *api.Config) { c.Auth = authenticator }}, changes...)
	return NewServer(t, s, changes...), headers
}

// NewMeteredServer serves a store, and returns the registry of its metrics. The namespace chat is configured.
func NewMeteredServer(t *testing.T, s store.Store, changes ...func(*api.Config)) (*Server, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	return NewServer(t, s, append(changes, func(c *api.Config) {
		c.Metrics = registry
		c.Namespaces = map[string]api.Settings{"chat": c.Settings}
	})...), registry
}

// FuzzHandler serves a store whose clock stands still.
func FuzzHandler(f *testing.F) http.Handler {
	f.Helper()
	return api.New(api.Config{
		Store: kit.NewClockStore(kit.OpenFileStore(f, filestore.Options{})), Settings: Settings(),
		Logger: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 },
	})
}
