package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// lookupOf returns the body of a lookup of n users.
func lookupOf(n int) string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf(`"user-%d"`, i)
	}
	return `{"users":[` + strings.Join(users, ",") + `]}`
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
		"gzip;q=2":       false, "gzip;q=-1": false, "gzip;q=NaN": false, "gzip;q=": false, "gzip;level=9": false,
		"gzip;q=2, gzip": true,
		"notgzip":        false, "gzipped": false, "gzip x": false,
	} {
		require.Equal(t, want, acceptsGzip([]string{accepted}), accepted)
		require.Equal(t, want, acceptsGzip([]string{"br", accepted}), accepted)
	}
	require.False(t, acceptsGzip(nil))
}

// TestCompression checks that large responses are compressed on request, with the right headers.
func TestCompression(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	w.post("/chat/pings", pingsOf(1000))
	large := lookupOf(1000)
	plain := w.send(http.MethodPost, "/chat/lookup", large, "Accept-Encoding: identity")
	require.Greater(t, len(plain.body), 100_000)
	require.Empty(t, plain.header.Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", plain.header.Get("Vary"), "or a cache would go on with it for everybody")
	require.Equal(t, strconv.Itoa(len(plain.body)), plain.header.Get("Content-Length"))

	packed := w.send(http.MethodPost, "/chat/lookup", large, "Accept-Encoding: br, gzip;q=0.5")
	require.Equal(t, "gzip", packed.header.Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", packed.header.Get("Vary"))
	require.Equal(t, strconv.Itoa(len(packed.body)), packed.header.Get("Content-Length"))
	require.Equal(t, "application/json", packed.header.Get("Content-Type"))
	require.Less(t, len(packed.body), len(plain.body)/10)
	unpacked, err := gunzip([]byte(packed.body))
	require.NoError(t, err)
	require.Equal(t, plain.body, string(unpacked))

	for _, c := range []struct {
		method, path, body string
		large              bool
	}{
		{http.MethodGet, "/chat/users", "", true},
		{http.MethodGet, "/chat/users?limit=1", "", false},
		{http.MethodGet, "/chat/users/alice", "", false},
		{http.MethodGet, "/chat/counts", "", false},
		{http.MethodPost, "/chat/lookup", lookupOf(1), false},
		{http.MethodPost, "/chat/users/alice/ping", "", false},
		{http.MethodPost, "/chat/pings", `{"pings":[` + strings.Repeat(`{},`, 30) + `{}]}`, true}, // 20 errors
		{http.MethodDelete, "/chat/users/alice", "", false},
	} {
		r := w.send(c.method, c.path, c.body, "Accept-Encoding: gzip")
		require.Equal(t, c.large, r.header.Get("Content-Encoding") == "gzip", c.path)
		require.Equal(t, c.large, r.header.Get("Vary") == "Accept-Encoding", c.path)
	}
}

// pingsOf returns the body of a bulk request with n pings.
func pingsOf(n int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(`{"user":"user-%d"}`, i)
	}
	return `{"pings":[` + strings.Join(items, ",") + `]}`
}

// TestCompressionAndCaches checks that the ETag does not depend on the encoding, because it is weak, and that 304
// and HEAD have the headers of 200.
func TestCompressionAndCaches(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	path := "/chat/lookup?user=u" + strings.Repeat("&user=u", 49)
	plain := w.send(http.MethodGet, path, "", "Accept-Encoding: identity")
	packed := w.send(http.MethodGet, path, "", "Accept-Encoding: gzip")
	require.Equal(t, "gzip", packed.header.Get("Content-Encoding"))
	tag := packed.header.Get("ETag")
	require.Regexp(t, `^W/`, tag)
	require.Equal(t, plain.header.Get("ETag"), tag)
	for _, accepted := range []string{"gzip", "identity"} {
		same := w.send(http.MethodGet, path, "", "Accept-Encoding: "+accepted, "If-None-Match: "+tag)
		require.Equal(t, http.StatusNotModified, same.status)
		require.Equal(t, "Accept-Encoding", same.header.Get("Vary"))
		require.Empty(t, same.header.Get("Content-Encoding"))
		require.Empty(t, same.body)
	}
	head := w.send(http.MethodHead, path, "", "Accept-Encoding: gzip")
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type", "Vary", "ETag"} {
		require.Equal(t, packed.header.Get(name), head.header.Get(name), name)
	}
	require.Empty(t, head.body)
}

// TestPagesAreCompressed checks that files are compressed if that saves something, and have another ETag then,
// because theirs are strong.
func TestPagesAreCompressed(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for path, want := range map[string]bool{
		"/openapi.yaml": true, "/openapi.json": true, "/docs/errors": true, "/docs/swagger-ui.css": true,
		"/docs/": false, "/docs/favicon.svg": false,
	} {
		plain := w.sendTo(http.MethodGet, path, "", "Accept-Encoding: identity")
		packed := w.sendTo(http.MethodGet, path, "", "Accept-Encoding: gzip")
		require.Equal(t, want, packed.header.Get("Content-Encoding") == "gzip", "%s: %d bytes", path, len(plain.body))
		require.Equal(t, want, packed.header.Get("ETag") != plain.header.Get("ETag"), path)
		require.Equal(t, want, plain.header.Get("Vary") == "Accept-Encoding", path)
		if want {
			unpacked, err := gunzip([]byte(packed.body))
			require.NoError(t, err)
			require.Equal(t, plain.body, string(unpacked), path)
			require.Less(t, len(packed.body), len(plain.body), path)
		}
	}
}

// TestCompressingConcurrently checks that compressors are shared and their output is not.
func TestCompressingConcurrently(t *testing.T) {
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			want := strings.Repeat(strconv.Itoa(n), 5000)
			got, err := gunzip(appendGzip(nil, []byte(want)))
			if err != nil || string(got) != want {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	all.Wait()
}

// BenchmarkCompression measures compressing a lookup of 1,000 users, and encoding it for comparison.
func BenchmarkCompression(b *testing.B) {
	response := lookupResponse{presences: presences{
		evaluated: evaluated{AsOf: timestamp(testNow)},
		Users:     make([]presence, 1000),
	}}
	for i := range response.Users {
		seen := timestamp(testNow - lastseen.Instant(i*7919%300_000))
		response.Users[i] = presence{
			User: benchUser(i * 7919), Status: lastseen.Yellow, LastSeen: seen,
			ValidUntil: seen + 300_000,
		}
	}
	encoded, buffer := response.appendJSON(nil), []byte(nil)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			buffer = response.appendJSON(buffer[:0])
		}
	})
	b.Run("compress", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buffer = appendGzip(buffer[:0], encoded)
		}
		b.ReportMetric(float64(len(encoded)), "plain-bytes")
		b.ReportMetric(float64(len(buffer)), "gzip-bytes")
	})
}
