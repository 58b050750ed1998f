package servertests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/web"
)

func TestOpenAPIDocument(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	asYAML := w.SendTo("GET", "/openapi.yaml", "").Is(t, http.StatusOK)
	require.Equal(t, "application/yaml", asYAML.Header.Get("Content-Type"))
	require.Equal(t, string(lastseen.OpenAPI("v0.0.0-test")), asYAML.Body)
	served, err := openapi3.NewLoader().LoadFromData([]byte(asYAML.Body))
	require.NoError(t, err)
	require.Equal(t, "v0.0.0-test", served.Info.Version, "of the server")

	asJSON := w.SendTo("GET", "/openapi.json", "").Is(t, http.StatusOK)
	require.Equal(t, "application/json", asJSON.Header.Get("Content-Type"))
	asyncAPI := w.SendTo("GET", "/asyncapi.yaml", "").Is(t, http.StatusOK)
	require.Equal(t, "application/yaml", asyncAPI.Header.Get("Content-Type"))
	require.Equal(t, string(lastseen.AsyncAPI("v0.0.0-test")), asyncAPI.Body)
	require.Contains(t, asyncAPI.Body, `version: "v0.0.0-test"`)
	frames := w.SendTo("GET", "/connections.schema.json", "").Is(t, http.StatusOK)
	require.Equal(t, "application/schema+json", frames.Header.Get("Content-Type"))
	require.Equal(t, string(lastseen.FrameSchemas()), frames.Body)
	events := w.SendTo("GET", "/guides/webhooks.schema.json", "").Is(t, http.StatusOK)
	require.Equal(t, "application/schema+json", events.Header.Get("Content-Type"))
	require.Contains(t, events.Body, `"WebhookChanged"`)

	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(asYAML.Body), &document))
	var converted any
	require.NoError(t, json.Unmarshal([]byte(asJSON.Body), &converted))
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
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, path := range web.Paths() {
		plain := w.SendTo("GET", path+"?theme=dark", "", "Accept-Encoding: identity, gzip;q=0", "Range: bytes=0-9").
			Is(t, http.StatusOK, path)
		require.Empty(t, plain.Header.Get("Accept-Ranges"), "a page is sent as a whole")
		require.Greater(t, len(plain.Body), 10, path)
		require.Empty(t, plain.Header.Get("Content-Encoding"), path)
		require.NotEmpty(t, plain.Body, path)
		for name, want := range fileHeaders(path) {
			require.Equal(t, want, plain.Header.Get(name), path)
		}
		requireClosed(t, plain.Header.Get("Content-Security-Policy"))

		etag := plain.Header.Get("ETag")
		require.Regexp(t, `^"[\w-]+"$`, etag, path)
		for _, known := range []string{etag, "W/" + etag, `"other", ` + etag, "*"} {
			same := w.SendTo("GET", path, "", "Accept-Encoding: identity", "If-None-Match: "+known).Is(t,
				http.StatusNotModified, path)
			require.Equal(t, etag, same.Header.Get("ETag"), path)
			require.Empty(t, same.Body, path)
		}
		changed := w.SendTo("GET", path, "", `If-None-Match: "other"`).Is(t, http.StatusOK, path)
		require.Equal(t, plain.Body, changed.Body, "%s: Go's client requests gzip and unpacks it", path)
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
	w := apitest.NewServer(t, kit.FileStore(t), apitest.Allowing(kit.AppOrigin))
	for _, origin := range []string{"https://app.example.com", "https://other.example.net", "null"} {
		script := w.SendTo("GET", "/lastseen.js", "", "Origin: "+origin).Is(t, http.StatusOK)
		require.Equal(t, []string{"*"}, script.Header.Values("Access-Control-Allow-Origin"), origin)
		require.Equal(t, "text/javascript; charset=utf-8", script.Header.Get("Content-Type"))
		require.Empty(t, script.Header.Get("Access-Control-Allow-Credentials"))
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
	w := apitest.NewServer(t, kit.FileStore(t))
	for path, want := range map[string]bool{
		"/openapi.yaml": true, "/openapi.json": true, "/docs/swagger-ui.css": true,
		"/docs/swagger-ui-bundle.js": true, "/docs/": false, "/docs/favicon.svg": false, "/guides/faq": true,
	} {
		plain := w.SendTo("GET", path, "", "Accept-Encoding: identity")
		packed := w.SendTo("GET", path, "", "Accept-Encoding: br, GZIP;q=0.5")
		require.Equal(t, want, packed.Header.Get("Content-Encoding") == "gzip", "%s: %d bytes", path, len(plain.Body))
		require.Equal(t, want, packed.Header.Get("ETag") != plain.Header.Get("ETag"), path)
		require.Equal(t, want, plain.Header.Get("Vary") == "Accept-Encoding", path)
		if !want {
			continue
		}
		require.Equal(t, "Accept-Encoding", packed.Header.Get("Vary"))
		unpacked, err := kit.Gunzip([]byte(packed.Body))
		require.NoError(t, err)
		require.Equal(t, plain.Body, string(unpacked), path)
		require.Less(t, len(packed.Body), len(plain.Body), path)
		known := "If-None-Match: " + packed.Header.Get("ETag")
		same := w.SendTo("GET", path, "", "Accept-Encoding: gzip", known).Is(t, http.StatusNotModified)
		require.Equal(t, "Accept-Encoding", same.Header.Get("Vary"))
		require.Empty(t, same.Header.Get("Content-Encoding"))
	}
}

func TestDocsRedirect(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	request, err := http.NewRequestWithContext(t.Context(), "GET", w.URL+"/docs?theme=dark", nil)
	require.NoError(t, err)
	response, err := http.DefaultTransport.RoundTrip(request)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusMovedPermanently, response.StatusCode)
	require.Equal(t, "docs/", response.Header.Get("Location"), "relative, so that it works below a proxy's prefix")
	require.Contains(t, w.SendTo("GET", "/docs", "").Body, `id="swagger-ui"`)
}

// TestPageLinksAreRelative checks that links are relative, so that pages also work below a prefix.
func TestPageLinksAreRelative(t *testing.T) {
	w, links := apitest.NewServer(t, kit.FileStore(t)), regexp.MustCompile(`(?:href|src)="([^"]*)"|url\(["']?([^"')]*)`)
	for _, page := range []string{
		"/", "/dashboard/dashboard.css",
		"/docs/", "/docs/docs.js", "/docs/docs.css", "/guides/guides.css",
	} {
		for _, link := range links.FindAllStringSubmatch(w.SendTo("GET", page, "").Body, -1) {
			require.NotRegexp(t, `^(/|\w+:)`, link[1]+link[2], page)
		}
	}
}

// TestErrorGuide checks that the type of every error points to an explanation.
func TestErrorGuide(t *testing.T) {
	page := apitest.NewServer(t, kit.FileStore(t)).SendTo("GET", "/docs/errors", "").Is(t, http.StatusOK).Body
	for _, k := range problem.Types() {
		require.Contains(t, page, `<h2 id="`+string(k.Code)+`">`)
	}
}

// TestRoot checks that the dashboard is at the root, and that an unknown path names the documentation.
func TestRoot(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, method := range []string{"GET", "HEAD"} {
		r := w.SendTo(method, "/?utm_source=x", "").Is(t, http.StatusOK)
		require.Equal(t, "text/html; charset=utf-8", r.Header.Get("Content-Type"))
	}
	require.Contains(t, w.SendTo("GET", "/", "").Body, `<script type="module" src="dashboard/main.js">`)
	for _, path := range []string{"/nothing", "/v2/namespaces", "/docs/nothing"} {
		r := w.SendTo("GET", path, "").Is(t, http.StatusNotFound)
		require.Contains(t, r.JSON(t)["detail"], "See /docs/", path)
	}
}

func lookupOf(n int) string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf(`"user-%d"`, i)
	}
	return `{"users":[` + strings.Join(users, ",") + `]}`
}

// TestCompression checks that large responses are compressed on request, with the right headers.
func TestCompression(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post("/chat/pings", pingsOf(1000))
	large := lookupOf(1000)
	plain := w.Send("POST", "/chat/lookup", large, "Accept-Encoding: identity")
	require.Greater(t, len(plain.Body), 100_000)
	require.Empty(t, plain.Header.Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", plain.Header.Get("Vary"), "or a cache would go on with it for everybody")
	require.Equal(t, strconv.Itoa(len(plain.Body)), plain.Header.Get("Content-Length"))

	packed := w.Send("POST", "/chat/lookup", large, "Accept-Encoding: br, gzip;q=0.5")
	require.Equal(t, "gzip", packed.Header.Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", packed.Header.Get("Vary"))
	require.Equal(t, strconv.Itoa(len(packed.Body)), packed.Header.Get("Content-Length"))
	require.Equal(t, "application/json", packed.Header.Get("Content-Type"))
	require.Less(t, len(packed.Body), len(plain.Body)/10)
	unpacked, err := kit.Gunzip([]byte(packed.Body))
	require.NoError(t, err)
	require.Equal(t, plain.Body, string(unpacked))

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
		r := w.Send(c.method, c.path, c.body, "Accept-Encoding: gzip")
		require.Equal(t, c.large, r.Header.Get("Content-Encoding") == "gzip", c.path)
		require.Equal(t, c.large, r.Header.Get("Vary") == "Accept-Encoding", c.path)
	}
}

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
	w := apitest.NewServer(t, kit.FileStore(t))
	path := "/chat/lookup?user=u" + strings.Repeat("&user=u", 49)
	plain := w.Send("GET", path, "", "Accept-Encoding: identity")
	packed := w.Send("GET", path, "", "Accept-Encoding: gzip")
	require.Equal(t, "gzip", packed.Header.Get("Content-Encoding"))
	tag := packed.Header.Get("ETag")
	require.Regexp(t, `^W/`, tag)
	require.Equal(t, plain.Header.Get("ETag"), tag)
	for _, accepted := range []string{"gzip", "identity"} {
		same := w.Send("GET", path, "", "Accept-Encoding: "+accepted, "If-None-Match: "+tag).Is(t,
			http.StatusNotModified)
		require.Equal(t, "Accept-Encoding", same.Header.Get("Vary"))
		require.Empty(t, same.Header.Get("Content-Encoding"))
		require.Empty(t, same.Body)
	}
	head := w.Send("HEAD", path, "", "Accept-Encoding: gzip")
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type", "Vary", "ETag"} {
		require.Equal(t, packed.Header.Get(name), head.Header.Get(name), name)
	}
	require.Empty(t, head.Body)
}
