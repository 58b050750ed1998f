package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/filestore"
)

// TestMethods goes through the table of routes: HEAD equals GET without a body, OPTIONS lists the methods, any other
// method is refused with the same list, and a trailing slash is not found, except in /docs/.
func TestMethods(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	const gzip = "Accept-Encoding: gzip" // without it the client asks for it only in GET, and hides it
	path := strings.NewReplacer(":namespace", "chat", ":user", "alice", ":id", "c1")
	w.ring("c1", "bob", "alice")
	for _, r := range (&server{}).routes() {
		at := path.Replace(r.path)
		query := ""
		if at == "/v1/namespaces/chat/lookup" || r.permission == readCall && strings.HasSuffix(at, "/calls") {
			query = "?user=alice"
		}
		options := w.sendTo(http.MethodOptions, at, "")
		require.Equal(t, http.StatusNoContent, options.status, at)
		allowed := strings.Split(options.header.Get("Allow"), ", ")
		require.Contains(t, allowed, r.method, at)
		wrong := w.sendTo(http.MethodTrace, at, "")
		require.Equal(t, http.StatusMethodNotAllowed, wrong.status, at)
		require.Equal(t, options.header.Get("Allow"), wrong.header.Get("Allow"))
		if at != "/docs" {
			require.Equal(t, http.StatusNotFound, w.sendTo(r.method, at+"/", "").status, at)
		}
		if r.method == http.MethodGet {
			require.Contains(t, allowed, http.MethodHead)
			const sameID = "X-Request-Id: 1" // an error has it in its body, too
			got := w.sendTo(http.MethodGet, at+query, "", gzip, sameID)
			head := w.sendTo(http.MethodHead, at+query, "", gzip, sameID)
			want := http.StatusOK
			if strings.HasSuffix(at, "/connect") {
				want = http.StatusUpgradeRequired
			}
			require.Equal(t, want, got.status, at)
			require.Equal(t, got.status, head.status)
			require.Empty(t, head.body)
			for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "ETag"} {
				require.Equal(t, got.header.Get(name), head.header.Get(name), "%s of %s", name, at)
			}
		}
	}
}

// TestUnescapedPaths checks that %2F is not a separator, even in a path with a byte that should have been escaped.
func TestUnescapedPaths(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for sent, user := range map[string]string{
		"ü%2Fping": "ü/ping", `a"%2Fb`: `a"/b`, "{x}%2F%7Cy": "{x}/|y", `%2541"`: `%41"`, "%2e%2F^": "./^",
	} {
		conn := w.dial()
		_, err := fmt.Fprintf(conn,
			"POST /v1/namespaces/chat/users/%s/ping HTTP/1.1\r\nHost: lastseen\r\nContent-Length: 0\r\n\r\n", sent)
		require.NoError(t, err)
		r := readResponse(t, conn)
		require.Equal(t, http.StatusOK, r.status, "%s: %s", sent, r.body)
		require.Equal(t, user, r.json(t)["user"], sent)
	}
}

// TestUnusualPaths checks that a path is decoded once, by the handler, and leads to a route or to nothing. It can
// never lead to a file.
func TestUnusualPaths(t *testing.T) {
	t.Parallel()
	const namespaces, user = "/v1/namespaces/", "/v1/namespaces/chat/users/"
	w := newLimitedServer(t)
	for path, want := range map[string]string{
		// Namespaces hold no percent sign, so that nothing is left to be decoded twice.
		namespaces + "..":                        "invalid_namespace",
		namespaces + "%2e%2e/counts":             "invalid_namespace",
		namespaces + "%252e%252e/counts":         "invalid_namespace",
		namespaces + "chat%00/counts":            "invalid_namespace",
		namespaces + "chat%2500/counts":          "invalid_namespace",
		namespaces + "chat%0d%0aX:y/counts":      "invalid_namespace",
		namespaces + "chat%2fcounts":             "invalid_namespace",
		namespaces + "chat%2f..%2fchat/counts":   "invalid_namespace",
		namespaces + "chat%5c..%5cchat/counts":   "invalid_namespace",
		namespaces + "chat;x=y/counts":           "invalid_namespace",
		namespaces + "%c0%ae%c0%ae/counts":       "invalid_namespace",
		namespaces + "%ef%bc%8e%ef%bc%8e/counts": "invalid_namespace",
		namespaces + "presence%3achat/counts":    "invalid_namespace",
		// Users may hold nearly everything, which is not taken for anything else.
		user + "..":                             "invalid_user",
		user + "%2e%2e":                         "invalid_user",
		user + ".%2e":                           "invalid_user",
		user + "%00":                            "invalid_user",
		user + "a%00b":                          "invalid_user",
		user + "a%0d%0aX-Evil:%20y":             "invalid_user",
		user + "%c0%af":                         "invalid_user",
		user + "%e0%80%af":                      "invalid_user",
		user + "%ed%a0%80":                      "invalid_user",
		user + "%f4%90%80%80":                   "invalid_user",
		user + strings.Repeat("%41", 257):       "invalid_user",
		user + "%252e%252e":                     "%2e%2e",
		user + "%2500":                          "%00",
		user + "%25252e":                        "%252e",
		user + "..%2f..%2f..%2fetc%2fpasswd":    "../../../etc/passwd",
		user + "..%5c..%5cwindows":              `..\..\windows`,
		user + "..;":                            "..;",
		user + "%ef%bc%8e%ef%bc%8e":             "．．",
		user + "$%7bjndi:x%7d":                  "${jndi:x}",
		user + "%3Cscript%3E":                   "<script>",
		user + "bob+eve":                        "bob+eve",
		user + "%e2%80%ae":                      "\u202e",
		"/v1/namespaces/chat/users/../counts":   "not_found",
		"/v1/../v1/namespaces":                  "not_found",
		"/v1/./namespaces":                      "not_found",
		"/./v1/namespaces":                      "not_found",
		"/V1/namespaces":                        "not_found",
		"/v1%2fnamespaces":                      "not_found",
		"/%76%31/namespaces":                    "not_found",
		"/healthz/..;/v1/namespaces":            "not_found",
		"/healthz%00":                           "not_found",
		"/docs/..%2f..%2fgo.mod":                "not_found",
		"/docs/..%5c..%5cgo.mod":                "not_found",
		"/docs/%2e%2e/%2e%2e/etc/passwd":        "not_found",
		"/docs/../openapi.yaml":                 "not_found",
		"/docs/docs.html":                       "not_found",
		"/docs//":                               "not_found",
		"/.git/config":                          "not_found",
		"/lastseen.db":                          "not_found",
		"/debug/pprof/":                         "not_found",
		"/v1/namespaces//users":                 "invalid_namespace",
		"/v1/namespaces/chat/users//ping":       "invalid_user",
		"/v1//namespaces/chat/users/alice/ping": "invalid_parameter",
	} {
		responses := w.exchange("GET " + path + " HTTP/1.1\r\nHost: lastseen\r\nConnection: close\r\n\r\n")
		require.Len(t, responses, 1, path)
		object := responses[0].json(t)
		if responses[0].status == http.StatusOK {
			require.Equal(t, want, object["user"], path)
		} else {
			require.Equal(t, want, object["code"], "%s: %s", path, responses[0].body)
		}
	}
}

// FuzzRequest checks that no path and no query makes the server fail.
func FuzzRequest(f *testing.F) {
	s, err := filestore.Open(filestore.Options{Path: filepath.Join(f.TempDir(), "fuzz.db"), Sync: time.Hour})
	require.NoError(f, err)
	f.Cleanup(func() { _ = s.Close() })
	handler := New(Config{Store: s, Settings: Settings{Thresholds: lastseen.Thresholds{
		Green:  time.Minute,
		Yellow: time.Hour,
	}, PingInterval: time.Second}})
	f.Add("GET", "/v1/namespaces/chat/users", "limit=1&status=green")
	f.Add("POST", "/v1/namespaces/chat/users/a%2Fb/ping", "")
	f.Add("GET", "/v1/namespaces//users/%2e%2e", "as_of=1&green=2&yellow=3")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		u, err := url.Parse(path)
		if err != nil || u.Path == "" || u.Path[0] != '/' {
			return
		}
		request := &http.Request{
			Method: method, URL: &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: query},
			Header: http.Header{}, Body: http.NoBody,
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		require.Less(t, recorder.Code, 500, "%s %s?%s: %s", method, path, query, recorder.Body)
	})
}
