package request

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest/kit"
)

// FuzzHeaders checks that no entry of a list hides the entries after it.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{
		"return=minimal", `W/"abc", *`, "gzip;q=0.5, br", "application/json; charset=utf-8",
		`text/plain; a="b`, "gzip;q=inf", ",;=\"", "a,;=\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		require.True(t, TagMatches([]string{value + `, W/"tag"`}, `"tag"`))
		require.True(t, TagMatches([]string{value, `"tag"`}, `"tag"`))
		require.True(t, PrefersMinimal(&http.Request{Header: http.Header{"Prefer": {value + ",return=minimal"}}}))
		if !strings.Contains(strings.ToLower(value), "gzip") {
			require.True(t, AcceptsGzip([]string{value, "gzip"}))
			require.False(t, !strings.Contains(value, "*") && AcceptsGzip([]string{value}))
		}
		c := echo.New().NewContext(&http.Request{Header: http.Header{"Content-Type": {value}}}, nil)
		media, err := MediaType(c)
		if err != nil {
			kit.RequireProblem(t, err)
			return
		}
		require.Contains(t, []string{JSON, NDJSON}, media)
	})
}

// TestAcceptEncoding checks which Accept-Encoding headers prefer gzip to the uncompressed response.
func TestAcceptEncoding(t *testing.T) {
	for accepted, want := range map[string]bool{
		"": false, "gzip": true, "GZip": true, "x-gzip": true, "*": true, "br": false, "identity": false,
		"gzip, deflate, br, zstd": true, "br;q=1, gzip;q=0.1": true, "gzip ; q=0.5": true, "gzip;Q=1": true,
		"gzip;q=0": false, "gzip;q=0.000": false, "gzip;q=0, *": false, "*;q=0": false, "*;q=0, gzip": true,
		"gzip;q=0;x":           false,
		"identity, gzip;q=0.5": false, "identity;q=0.5, gzip": true, "identity;q=0, gzip;q=0.1": true,
		"identity, gzip": true,
		"gzip;q=2":       false, "gzip;q=-1": false, "gzip;q=NaN": false, "gzip;q=": false, "gzip;level=9": true,
		"gzip;q=2, gzip": true,
		"notgzip":        false, "gzipped": false, "gzip x": false,
	} {
		require.Equal(t, want, AcceptsGzip([]string{accepted}), accepted)
		require.Equal(t, want, AcceptsGzip([]string{"br", accepted}), accepted)
	}
	require.False(t, AcceptsGzip(nil))
}

// TestCompressingConcurrently checks that compressors are shared and their output is not.
func TestCompressingConcurrently(t *testing.T) {
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			want := strings.Repeat(strconv.Itoa(n), 5000)
			got, err := kit.Gunzip(appendGzip(nil, []byte(want)))
			if err != nil || string(got) != want {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	all.Wait()
}

func TestPrefers(t *testing.T) {
	acceptsEvents := func(headers []string) bool { return Prefers(headers, "text/event-stream", JSON) }
	for want, headers := range map[bool][]string{
		true: {
			"text/event-stream", "Text/Event-Stream", "text/event-stream;q=0.1", "text/event-stream;charset=utf-8",
			"text/event-stream, */*", "text/event-stream;q=0.5, */*", // a wildcard is no preference for JSON
			"application/json, text/event-stream", "application/json;q=0.9, text/event-stream",
			"text/event-stream;q=0, text/event-stream;q=0.5",
		},
		false: {
			"", "*/*", "text/*", "application/json", "text/event-stream; charset=utf-8; q=0",
			"application/json, text/event-stream;q=0.9", "text/event-stream;q=0", "text/event-stream;q=2", // malformed
			"text/event-stream2, text/html", "application/json, text/plain, */*",
		},
	} {
		for _, accept := range headers {
			require.Equal(t, want, acceptsEvents([]string{accept}), accept)
		}
	}
	require.False(t, acceptsEvents(nil))
	require.True(t, acceptsEvents([]string{"text/html", "text/event-stream"}), "in two headers")
}
