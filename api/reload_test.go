package api

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// recorder is a store that reports each recorded chunk. It is a fake because a test has to act between two chunks.
type recorder struct {
	idleStore
	recorded chan int
}

func (r recorder) Now(context.Context) (lastseen.Instant, error) { return 1_795_176_000_000, nil }

func (r recorder) Ping(_ context.Context, _ string, batch []store.Sighting) ([]lastseen.State, error) {
	r.recorded <- len(batch)
	return make([]lastseen.State, len(batch)), nil
}

// TestRemovedKeyIsCharged checks that a stream whose key is removed by a reload ends, and is charged like any other
// request with invalid credentials: to its address.
func TestRemovedKeyIsCharged(t *testing.T) {
	authenticator := func(key string) *auth.Authenticator {
		a, err := auth.New(auth.Config{Keys: []auth.Key{{
			Name: key, Hash: sha256.Sum256([]byte(key)), Scopes: []auth.Scope{auth.Ping},
			Namespaces: []auth.Pattern{"*"},
		}}}, auth.Options{})
		require.NoError(t, err)
		return a
	}
	now := time.Now()
	pings := recorder{recorded: make(chan int)}
	config := Config{
		Store: pings, Auth: authenticator("ls_old"), Limits: limit.Limits{Caller: 1},
		Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
	}
	config.Shared = NewShared(config)
	serve := func(h http.Handler, key string, body io.Reader) int {
		request := httptest.NewRequest(http.MethodPost, "/v1/namespaces/a/pings", body)
		request.Header.Set(echo.HeaderContentType, mediaNDJSON)
		request.Header.Set(echo.HeaderAuthorization, "Bearer "+key)
		response := httptest.NewRecorder()
		h.ServeHTTP(response, request)
		return response.Code
	}

	body, lines := io.Pipe()
	status := make(chan int)
	before := New(config)
	go func() { status <- serve(before, "ls_old", body) }()
	_, err := io.WriteString(lines, "{\"user\":\"alice\"}\n")
	require.NoError(t, err)
	require.Equal(t, 1, <-pings.recorded)
	config.Auth = authenticator("ls_new")
	after := New(config)
	_, err = io.WriteString(lines, "{\"user\":\"bob\"}\n")
	require.NoError(t, err)
	require.NoError(t, lines.Close()) // the rest of a refused body is read, too
	require.Equal(t, http.StatusUnauthorized, <-status)

	for range limit.Burst(1) - 1 {
		require.Equal(t, http.StatusUnauthorized, serve(after, "ls_old", http.NoBody))
	}
	require.Equal(t, http.StatusTooManyRequests, serve(after, "ls_old", http.NoBody))
}
