package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesHaveNoRanges checks that a page is sent as a whole, and that its header promises nothing else.
func TestPagesHaveNoRanges(t *testing.T) {
	request := httptest.NewRequest(http.MethodGet, "http://localhost/docs/", http.NoBody)
	request.Header.Set("Range", "bytes=0-9")
	response := httptest.NewRecorder()
	New(Config{Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(response, request)
	require.Equal(t, http.StatusOK, response.Code)
	require.Greater(t, response.Body.Len(), 10)
	require.Empty(t, response.Header().Get("Accept-Ranges"))
}
