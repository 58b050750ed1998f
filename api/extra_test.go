package api

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
)

// TestExtraEndpoints: what the program adds stands behind the same middleware as everything else.
func TestExtraEndpoints(t *testing.T) {
	handler := New(Config{
		Store: fileStore(t), Settings: Settings{}, Logger: slog.New(slog.DiscardHandler),
		Extra: []Endpoint{
			{http.MethodGet, "/extra/:name", func(c echo.Context) error { return c.String(http.StatusOK, c.Param("name")) }},
			{http.MethodPost, "/fails", func(echo.Context) error { return errors.New("secret") }},
			{http.MethodPost, "/panics", func(echo.Context) error { panic("secret") }},
		},
	})
	ask := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, http.NoBody))
		require.NotEmpty(t, w.Header().Get("X-Request-Id"), path)
		require.NotContains(t, w.Body.String(), "secret")
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	status, body := ask(http.MethodGet, "/extra/alice")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "alice", body)
	for path, want := range map[string]int{
		"/extra/alice": http.StatusMethodNotAllowed, "/fails": http.StatusInternalServerError,
		"/panics": http.StatusInternalServerError, "/fails?typo=1": http.StatusBadRequest,
	} {
		status, body := ask(http.MethodPost, path)
		require.Equal(t, want, status, path)
		require.Contains(t, body, `"request_id"`, path)
	}
	status, _ = ask(http.MethodHead, "/extra/alice")
	require.Equal(t, http.StatusOK, status)
}
