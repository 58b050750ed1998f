package demo

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// TestPage: HTML and scripts name the lastseen server, and nothing but files is served.
func TestPage(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"index.html": {Data: []byte(`<a href="{{.}}/">`)}, "a.js": {Data: []byte(`import '{{.}}/lastseen.js'`)},
		"a.css": {Data: []byte("a")}, "folder/b.js": {Data: []byte("b")},
	}
	page := Page(files, "http://127.0.0.1:1")
	for path, want := range map[string]string{
		"/": `<a href="http://127.0.0.1:1/">`, "/a.js": "import 'http://127.0.0.1:1/lastseen.js'", "/a.css": "a",
		"/b.js": "", "/folder": "", "/*.js": "", "/%2e%2e": "", "/missing": "",
	} {
		response := httptest.NewRecorder()
		page.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
		if want == "" {
			require.NotEqual(t, http.StatusOK, response.Code, path)
			continue
		}
		require.Equal(t, http.StatusOK, response.Code, path)
		require.Equal(t, want, response.Body.String(), path)
	}
}
