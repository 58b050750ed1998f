package api

import (
	"encoding/json"
	"html/template"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/web"
)

func TestOpenAPIDocument(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	asYAML := w.sendTo(http.MethodGet, "/openapi.yaml", "")
	require.Equal(t, http.StatusOK, asYAML.status)
	require.Equal(t, "application/yaml", asYAML.header.Get("Content-Type"))
	require.Equal(t, string(lastseen.OpenAPI()), asYAML.body)

	asJSON := w.sendTo(http.MethodGet, "/openapi.json", "")
	require.Equal(t, http.StatusOK, asJSON.status)
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
		plain := w.sendTo(http.MethodGet, path+"?theme=dark", "", "Accept-Encoding: identity, gzip;q=0")
		require.Equal(t, http.StatusOK, plain.status, path)
		require.Empty(t, plain.header.Get("Content-Encoding"), path)
		require.NotEmpty(t, plain.body, path)
		for name, want := range fileHeaders(path) {
			require.Equal(t, want, plain.header.Get(name), path)
		}
		requireClosed(t, plain.header.Get("Content-Security-Policy"))

		etag := plain.header.Get("ETag")
		require.Regexp(t, `^"[\w-]+"$`, etag, path)
		for _, known := range []string{etag, "W/" + etag, `"other", ` + etag, "*"} {
			same := w.sendTo(http.MethodGet, path, "", "Accept-Encoding: identity", "If-None-Match: "+known)
			require.Equal(t, http.StatusNotModified, same.status, path)
			require.Equal(t, etag, same.header.Get("ETag"), path)
			require.Empty(t, same.body, path)
		}
		changed := w.sendTo(http.MethodGet, path, "", `If-None-Match: "other"`)
		require.Equal(t, http.StatusOK, changed.status, path)
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
		script := w.sendTo(http.MethodGet, "/lastseen.js", "", "Origin: "+origin)
		require.Equal(t, http.StatusOK, script.status)
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

func TestLargeFilesAreCompressed(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	const path = "/docs/swagger-ui-bundle.js"
	plain := w.sendTo(http.MethodGet, path, "", "Accept-Encoding: identity")
	for _, accepted := range []string{"gzip", "br, GZIP;q=0.5"} {
		packed := w.sendTo(http.MethodGet, path, "", "Accept-Encoding: "+accepted)
		require.Equal(t, "gzip", packed.header.Get("Content-Encoding"))
		require.Equal(t, "Accept-Encoding", packed.header.Get("Vary"))
		require.Less(t, len(packed.body), len(plain.body)/2)
		require.NotEqual(t, plain.header.Get("ETag"), packed.header.Get("ETag"))
		unpacked, err := gunzip([]byte(packed.body))
		require.NoError(t, err)
		require.Equal(t, plain.body, string(unpacked))
		known := "If-None-Match: " + packed.header.Get("ETag")
		same := w.sendTo(http.MethodGet, path, "", "Accept-Encoding: "+accepted, known)
		require.Equal(t, http.StatusNotModified, same.status)
		require.Equal(t, "Accept-Encoding", same.header.Get("Vary"))
		require.Empty(t, same.header.Get("Content-Encoding"))
	}
}

// TestOtherFilesAreNotServed checks that only the listed paths are served, unlike in a file server.
func TestOtherFilesAreNotServed(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, path := range []string{
		"/docs/docs.html", "/docs/index.html", "/docs/swagger-ui.js", "/docs/swagger-ui-bundle.js.gz",
		"/docs/pages/docs.html", "/docs/../openapi.yaml", "/docs/%2e%2e/openapi.yaml", "/docs/errors/",
		"/docs/docs.js/",
		"/openapi.yaml/", "/openapi",
	} {
		r := w.sendTo(http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, r.status, path)
		require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), path)
	}
}

func TestDocsRedirect(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/docs?theme=dark", nil)
	require.NoError(t, err)
	response, err := http.DefaultTransport.RoundTrip(request)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusMovedPermanently, response.StatusCode)
	require.Equal(t, "docs/", response.Header.Get("Location"), "relative, so that it works below a proxy's prefix")
	require.Contains(t, w.sendTo(http.MethodGet, "/docs", "").body, `id="swagger-ui"`)
}

// TestPageLinksAreRelative checks that links are relative, so that pages also work below a prefix.
func TestPageLinksAreRelative(t *testing.T) {
	w, links := newTestServer(t, fileStore(t)), regexp.MustCompile(`(?:href|src)="([^"]*)"|url\(["']?([^"')]*)`)
	for _, page := range []string{
		"/", "/dashboard/dashboard.css",
		"/docs/", "/docs/errors", "/docs/docs.js", "/docs/docs.css", "/docs/errors.css",
	} {
		for _, link := range links.FindAllStringSubmatch(w.sendTo(http.MethodGet, page, "").body, -1) {
			require.NotRegexp(t, `^(/|\w+:)`, link[1]+link[2], page)
		}
	}
}

// TestErrorGuide checks that the type of every error points to an explanation.
func TestErrorGuide(t *testing.T) {
	page := newTestServer(t, fileStore(t)).sendTo(http.MethodGet, "/docs/errors", "")
	require.Equal(t, http.StatusOK, page.status)
	seen := map[string]code{}
	for _, k := range ErrorCodes() {
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
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r := w.sendTo(method, "/?utm_source=x", "")
		require.Equal(t, http.StatusOK, r.status)
		require.Equal(t, "text/html; charset=utf-8", r.header.Get("Content-Type"))
	}
	require.Contains(t, w.sendTo(http.MethodGet, "/", "").body, `<script type="module" src="dashboard/main.js">`)
	for _, path := range []string{"/nothing", "/v2/namespaces", "/docs/nothing"} {
		r := w.sendTo(http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, r.status)
		require.Contains(t, r.json(t)["detail"], "See /docs/", path)
	}
}
