package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
)

// TestLongHeaders checks that headers with lists accept long ones, and that their last entry counts as much as the
// first.
func TestLongHeaders(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	for _, filler := range []string{
		",", " ,\t", "x,", `W/"x",`, "*/*,", "a;b=c,", ";,", "=,", `"`, `\",`, "return=,",
		"gzip;q=,",
	} {
		bomb := strings.Repeat(filler, (80<<10)/len(filler))
		ping := w.send(http.MethodPost, "/chat/users/alice/ping", "", "Prefer: "+bomb,
			"Prefer: "+bomb[:1000]+",return=minimal")
		require.Equal(t, http.StatusNoContent, ping.status, filler)
		tag := w.send(http.MethodGet, "/chat/users/alice?as_of=100000", "").header.Get("ETag")
		tagged := w.send(http.MethodGet, "/chat/users/alice?as_of=100000", "", "If-None-Match: "+bomb,
			"If-None-Match: "+tag)
		require.Equal(t, http.StatusNotModified, tagged.status, filler)
		page := w.sendTo(http.MethodGet, "/docs/swagger-ui.css", "", "Accept-Encoding: "+bomb+",gzip")
		require.Equal(t, http.StatusOK, page.status, filler)
		require.Equal(t, http.StatusUnsupportedMediaType,
			w.send(http.MethodPost, "/chat/users/alice/ping", "{}", "Content-Type: "+bomb).status, filler)
	}
}

// FuzzHeaders checks that no entry of a list hides the entries after it.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{
		"return=minimal", `W/"abc", *`, "gzip;q=0.5, br", "application/json; charset=utf-8",
		`text/plain; a="b`, "gzip;q=inf", ",;=\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		require.True(t, etagMatches([]string{value + `, W/"tag"`}, `"tag"`))
		require.True(t, etagMatches([]string{value, `"tag"`}, `"tag"`))
		require.True(t, prefersMinimal(&http.Request{Header: http.Header{"Prefer": {value + ",return=minimal"}}}))
		if !strings.Contains(strings.ToLower(value), "gzip") {
			require.True(t, acceptsGzip([]string{value, "gzip"}))
			require.False(t, !strings.Contains(value, "*") && acceptsGzip([]string{value}))
		}
		c := echo.New().NewContext(&http.Request{Header: http.Header{"Content-Type": {value}}}, nil)
		media, err := mediaType(c)
		if err != nil {
			requireProblem(t, err)
			return
		}
		require.Contains(t, []string{mediaJSON, mediaNDJSON}, media)
		require.Equal(t, validRequestID(value), validRequestID(strings.Clone(value)))
	})
}
