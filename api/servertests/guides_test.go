package servertests

import (
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/docs"
)

// TestGuideLinksAnswer follows every link from the index of the guides to whatever is below it: each page, each anchor
// on it, each picture and each file answers, and all guides are found that way.
func TestGuideLinksAnswer(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	reference := regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	pages, waiting := map[string]string{}, []string{"/guides/"}
	for len(waiting) > 0 {
		at := waiting[0]
		waiting = waiting[1:]
		if pages[at] != "" {
			continue
		}
		pages[at] = w.SendTo("GET", at, "").Is(t, http.StatusOK, at).Body
		if !strings.HasPrefix(at, "/guides/") || filepath.Ext(at) != "" {
			continue
		}
		for _, match := range reference.FindAllStringSubmatch(pages[at], -1) {
			target := resolve(t, at, match[1])
			if target.Host == "" && target.Path != at {
				waiting = append(waiting, target.Path)
			}
		}
	}
	for at, page := range pages {
		if !strings.HasPrefix(at, "/guides/") {
			continue
		}
		for _, match := range reference.FindAllStringSubmatch(page, -1) {
			target := resolve(t, at, match[1])
			if target.Host == "" && target.Fragment != "" {
				require.Contains(t, pages[target.Path], ` id="`+target.Fragment+`"`, "%s: %s", at, match[1])
			}
		}
	}
	guides, err := fs.Glob(docs.Files(), "*.md")
	require.NoError(t, err)
	for _, name := range guides {
		if name != "README.md" {
			require.NotEmpty(t, pages["/guides/"+strings.TrimSuffix(name, ".md")], "no link leads to %s", name)
		}
	}
}

// resolve returns where a link on a page leads to: on this server, which may be below a prefix, or to another host. A
// link to the repository names a file in it.
func resolve(t *testing.T, at, link string) *url.URL {
	t.Helper()
	require.NotRegexp(t, "^/", link, "%s: not below a prefix", at)
	base, err := url.Parse(at)
	require.NoError(t, err)
	target, err := base.Parse(link)
	require.NoError(t, err, link)
	if name, ok := strings.CutPrefix(link, "https://github.com/lastseen/lastseen/blob/main/"); ok {
		name, _, _ = strings.Cut(name, "#")
		_, err := os.Stat("../../" + name)
		require.NoError(t, err, "%s: %s", at, link)
	}
	return target
}

// TestGuideRedirects checks that the paths of the files in the repository lead to the pages, and that the URLs are
// relative, for proxies that add a prefix.
func TestGuideRedirects(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	for path, want := range map[string]string{
		"/guides": "guides/", "/guides/faq.md": "faq", "/guides/README.md": "./",
		"/guides/faq.md?next=//evil.example": "faq",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			request, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, nil)
			require.NoError(t, err)
			response, err := http.DefaultTransport.RoundTrip(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, http.StatusMovedPermanently, response.StatusCode, path)
			require.Equal(t, want, response.Header.Get("Location"), path)
		}
	}
}
