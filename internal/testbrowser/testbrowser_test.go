package testbrowser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// TestBrowserReportsProblems checks that seen returns the problems of a page that has some of each kind.
func TestBrowserReportsProblems(t *testing.T) {
	t.Parallel()
	const page = `<!doctype html><title>bad</title><link rel="icon" href="data:,"><img src="http://localhost:1/pixel.png">
		<script>inline = 1</script><script src="/bad.js"></script>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Content-Security-Policy", "script-src 'self'")
			fmt.Fprint(w, page)
		case "/bad.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `console.warn("a warning"); fetch("/missing").then(() => { done = true }); undefined.x`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	b := Open(t, server.URL)
	b.Do(t, chromedp.Navigate(server.URL), Until("window.done"))
	seen := strings.Join(b.Seen(), "\n")
	for _, complaint := range []string{
		"request to http://localhost:1/pixel.png", "Content Security Policy", "a warning", "/missing", "TypeError",
	} {
		require.Contains(t, seen, complaint)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	End()
	os.Exit(code)
}
