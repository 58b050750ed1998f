package api

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/web"
)

func TestOpenAPIDocument(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	asYAML := w.sendTo("GET", "/openapi.yaml", "").is(t, http.StatusOK)
	require.Equal(t, "application/yaml", asYAML.header.Get("Content-Type"))
	require.Equal(t, string(lastseen.OpenAPI()), asYAML.body)

	asJSON := w.sendTo("GET", "/openapi.json", "").is(t, http.StatusOK)
	require.Equal(t, "application/json", asJSON.header.Get("Content-Type"))
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal(lastseen.OpenAPI(), &document))
	var converted any
	require.NoError(t, json.Unmarshal([]byte(asJSON.body), &converted))
	requireSame(t, document.Content[0], converted, "")
}

// requireSame compares a YAML document with JSON, down to the text of scalars: a time, for example, stays a string.
func requireSame(t *testing.T, node *yaml.Node, value any, at string) {
	t.Helper()
	switch node.Kind {
	case yaml.MappingNode:
		object, ok := value.(map[string]any)
		require.True(t, ok, at)
		require.Len(t, object, len(node.Content)/2, at)
		for i := 0; i < len(node.Content); i += 2 {
			name := node.Content[i].Value
			require.Contains(t, object, name, at)
			requireSame(t, node.Content[i+1], object[name], at+"/"+name)
		}
	case yaml.SequenceNode:
		array, ok := value.([]any)
		require.True(t, ok, at)
		require.Len(t, array, len(node.Content), at)
		for i := range array {
			requireSame(t, node.Content[i], array[i], at)
		}
	default:
		if text, ok := value.(string); ok {
			require.Equal(t, node.Value, text, at)
			return
		}
		var scalar any
		require.NoError(t, node.Decode(&scalar), at)
		require.EqualValues(t, scalar, value, at)
	}
}

// TestFileHeaders checks what all files have in common.
func TestFileHeaders(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	for _, path := range web.Paths() {
		plain := w.sendTo("GET", path+"?theme=dark", "", "Accept-Encoding: identity, gzip;q=0", "Range: bytes=0-9").
			is(t, http.StatusOK, path)
		require.Empty(t, plain.header.Get("Accept-Ranges"), "a page is sent as a whole")
		require.Greater(t, len(plain.body), 10, path)
		require.Empty(t, plain.header.Get("Content-Encoding"), path)
		require.NotEmpty(t, plain.body, path)
		for name, want := range fileHeaders(path) {
			require.Equal(t, want, plain.header.Get(name), path)
		}
		requireClosed(t, plain.header.Get("Content-Security-Policy"))

		etag := plain.header.Get("ETag")
		require.Regexp(t, `^"[\w-]+"$`, etag, path)
		for _, known := range []string{etag, "W/" + etag, `"other", ` + etag, "*"} {
			same := w.sendTo("GET", path, "", "Accept-Encoding: identity", "If-None-Match: "+known).is(t,
				http.StatusNotModified, path)
			require.Equal(t, etag, same.header.Get("ETag"), path)
			require.Empty(t, same.body, path)
		}
		changed := w.sendTo("GET", path, "", `If-None-Match: "other"`).is(t, http.StatusOK, path)
		require.Equal(t, plain.body, changed.body, "%s: Go's client requests gzip and unpacks it", path)
	}
}

// fileHeaders returns the headers of a file. Pages of any origin can use lastseen.js.
func fileHeaders(path string) map[string]string {
	headers := map[string]string{
		"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Access-Control-Allow-Origin": "",
		"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
	}
	if strings.HasPrefix(path, "/lastseen.") {
		headers["Cache-Control"], headers["Access-Control-Allow-Origin"] = "public, max-age=300", "*"
		headers["Cross-Origin-Resource-Policy"] = "cross-origin"
	}
	return headers
}

// TestScriptIsForAllOrigins checks that lastseen.js is the same for origins that are allowed to call the API and for
// others, and that it is typed for browsers.
func TestScriptIsForAllOrigins(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t), func(c *Config) { c.CORSOrigins = []string{"https://app.example.com"} })
	for _, origin := range []string{"https://app.example.com", "https://other.example.net", "null"} {
		script := w.sendTo("GET", "/lastseen.js", "", "Origin: "+origin).is(t, http.StatusOK)
		require.Equal(t, []string{"*"}, script.header.Values("Access-Control-Allow-Origin"), origin)
		require.Equal(t, "text/javascript; charset=utf-8", script.header.Get("Content-Type"))
		require.Empty(t, script.header.Get("Access-Control-Allow-Credentials"))
	}
}

// requireClosed checks that a page with this Content-Security-Policy loads only what this server serves, runs no inline
// scripts and cannot be framed.
func requireClosed(t *testing.T, policy string) {
	t.Helper()
	require.Regexp(t, `^default-src 'none';.* frame-ancestors 'none'$`, policy)
	for directive := range strings.SplitSeq(policy, ";") {
		require.Subset(t, []string{"'none'", "'self'", "data:"}, strings.Fields(directive)[1:], directive)
	}
	require.NotRegexp(t, `(default|script|style|connect)-src[^;]* data:`, policy)
}

// TestPagesAreCompressed checks that files are compressed if that saves something, and have another ETag then,
// because theirs are strong.
func TestPagesAreCompressed(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	for path, want := range map[string]bool{
		"/openapi.yaml": true, "/openapi.json": true, "/docs/errors": true, "/docs/swagger-ui.css": true,
		"/docs/swagger-ui-bundle.js": true, "/docs/": false, "/docs/favicon.svg": false,
	} {
		plain := w.sendTo("GET", path, "", "Accept-Encoding: identity")
		packed := w.sendTo("GET", path, "", "Accept-Encoding: br, GZIP;q=0.5")
		require.Equal(t, want, packed.header.Get("Content-Encoding") == "gzip", "%s: %d bytes", path, len(plain.body))
		require.Equal(t, want, packed.header.Get("ETag") != plain.header.Get("ETag"), path)
		require.Equal(t, want, plain.header.Get("Vary") == "Accept-Encoding", path)
		if !want {
			continue
		}
		require.Equal(t, "Accept-Encoding", packed.header.Get("Vary"))
		unpacked, err := gunzip([]byte(packed.body))
		require.NoError(t, err)
		require.Equal(t, plain.body, string(unpacked), path)
		require.Less(t, len(packed.body), len(plain.body), path)
		known := "If-None-Match: " + packed.header.Get("ETag")
		same := w.sendTo("GET", path, "", "Accept-Encoding: gzip", known).is(t, http.StatusNotModified)
		require.Equal(t, "Accept-Encoding", same.header.Get("Vary"))
		require.Empty(t, same.header.Get("Content-Encoding"))
	}
}

func TestDocsRedirect(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	request, err := http.NewRequestWithContext(t.Context(), "GET", w.url+"/docs?theme=dark", nil)
	require.NoError(t, err)
	response, err := http.DefaultTransport.RoundTrip(request)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusMovedPermanently, response.StatusCode)
	require.Equal(t, "docs/", response.Header.Get("Location"), "relative, so that it works below a proxy's prefix")
	require.Contains(t, w.sendTo("GET", "/docs", "").body, `id="swagger-ui"`)
}

// TestPageLinksAreRelative checks that links are relative, so that pages also work below a prefix.
func TestPageLinksAreRelative(t *testing.T) {
	w, links := newTestServer(t, fileStore(t)), regexp.MustCompile(`(?:href|src)="([^"]*)"|url\(["']?([^"')]*)`)
	for _, page := range []string{
		"/", "/dashboard/dashboard.css",
		"/docs/", "/docs/errors", "/docs/docs.js", "/docs/docs.css", "/docs/errors.css",
	} {
		for _, link := range links.FindAllStringSubmatch(w.sendTo("GET", page, "").body, -1) {
			require.NotRegexp(t, `^(/|\w+:)`, link[1]+link[2], page)
		}
	}
}

// TestErrorGuide checks that the type of every error points to an explanation.
func TestErrorGuide(t *testing.T) {
	page := newTestServer(t, fileStore(t)).sendTo("GET", "/docs/errors", "")
	require.Equal(t, http.StatusOK, page.status)
	seen := map[string]problem.Code{}
	for _, k := range problem.Types() {
		require.Contains(t, page.body, `<section id="`+string(k.Code)+`">`)
		for _, text := range []string{k.Meaning, k.Remedy, k.Retry()} {
			require.Regexp(t, `^[A-Za-z].{20,}\.$`, text, "%s: sentences", k.Code)
			require.Contains(t, page.body, template.HTMLEscapeString(text))
		}
		for _, text := range []string{k.Title, k.Meaning, k.Remedy} {
			require.Empty(t, seen[text], "%s says the same as %s", k.Code, seen[text])
			seen[text] = k.Code
		}
	}
}

// TestRoot checks that the dashboard is at the root, and that an unknown path names the documentation.
func TestRoot(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, method := range []string{"GET", "HEAD"} {
		r := w.sendTo(method, "/?utm_source=x", "").is(t, http.StatusOK)
		require.Equal(t, "text/html; charset=utf-8", r.header.Get("Content-Type"))
	}
	require.Contains(t, w.sendTo("GET", "/", "").body, `<script type="module" src="dashboard/main.js">`)
	for _, path := range []string{"/nothing", "/v2/namespaces", "/docs/nothing"} {
		r := w.sendTo("GET", path, "").is(t, http.StatusNotFound)
		require.Contains(t, r.json(t)["detail"], "See /docs/", path)
	}
}

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
	plain := w.send("POST", "/chat/lookup", large, "Accept-Encoding: identity")
	require.Greater(t, len(plain.body), 100_000)
	require.Empty(t, plain.header.Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", plain.header.Get("Vary"), "or a cache would go on with it for everybody")
	require.Equal(t, strconv.Itoa(len(plain.body)), plain.header.Get("Content-Length"))

	packed := w.send("POST", "/chat/lookup", large, "Accept-Encoding: br, gzip;q=0.5")
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
		{"GET", "/chat/users", "", true},
		{"GET", "/chat/users?limit=1", "", false},
		{"GET", "/chat/users/alice", "", false},
		{"GET", "/chat/counts", "", false},
		{"POST", "/chat/lookup", lookupOf(1), false},
		{"POST", "/chat/users/alice/ping", "", false},
		{"POST", "/chat/pings", `{"pings":[` + strings.Repeat(`{},`, 30) + `{}]}`, true}, // 20 errors
		{"DELETE", "/chat/users/alice", "", false},
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
	plain := w.send("GET", path, "", "Accept-Encoding: identity")
	packed := w.send("GET", path, "", "Accept-Encoding: gzip")
	require.Equal(t, "gzip", packed.header.Get("Content-Encoding"))
	tag := packed.header.Get("ETag")
	require.Regexp(t, `^W/`, tag)
	require.Equal(t, plain.header.Get("ETag"), tag)
	for _, accepted := range []string{"gzip", "identity"} {
		same := w.send("GET", path, "", "Accept-Encoding: "+accepted, "If-None-Match: "+tag).is(t,
			http.StatusNotModified)
		require.Equal(t, "Accept-Encoding", same.header.Get("Vary"))
		require.Empty(t, same.header.Get("Content-Encoding"))
		require.Empty(t, same.body)
	}
	head := w.send("HEAD", path, "", "Accept-Encoding: gzip")
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type", "Vary", "ETag"} {
		require.Equal(t, packed.header.Get(name), head.header.Get(name), name)
	}
	require.Empty(t, head.body)
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
