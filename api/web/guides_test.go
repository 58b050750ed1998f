package web

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/docs"
)

// maxSearch is how large the search of the guides can be, uncompressed, in bytes.
const maxSearch = 200_000

// TestGuidesAreRendered checks that each guide is a page without Markdown, and that nothing of it is left out: raw HTML
// other than comments would be.
func TestGuidesAreRendered(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(docs.Files(), "*.md")
	require.NoError(t, err)
	require.Greater(t, len(names), 20)
	for _, name := range names {
		source, err := fs.ReadFile(docs.Files(), name)
		require.NoError(t, err)
		page := string(served(t, guidePath(name)).plain)
		title := strings.TrimPrefix(strings.SplitN(string(source), "\n", 2)[0], "# ")
		require.Contains(t, page, "<title>lastseen: "+title+"</title>", name)
		require.Equal(t, 1, strings.Count(page, "<h1 "), name)
		require.NotContains(t, page, ` style="`, "%s: the policy forbids it", name)
		text := regexp.MustCompile(`(?s)<pre>.*?</pre>|<code>.*?</code>`).ReplaceAllString(page, "")
		require.NotContains(t, text, "](", name)
		require.NotRegexp(t, "\n *(\\||#|```|- )", text, name)
		comments := strings.Count(string(source), "\n<!-- ")
		require.Equal(t, comments, strings.Count(page, "<!-- raw HTML omitted -->"), name)
	}
}

// TestGuideIsSafe checks that a guide cannot bring scripts into its page, or links that run them.
func TestGuideIsSafe(t *testing.T) {
	t.Parallel()
	source := "# A <script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n[b](javascript:alert(1)) <b>c</b>\n"
	document, sections := Pages{}.parse([]byte(source))
	var b strings.Builder
	require.NoError(t, markdown().Renderer().Render(&b, []byte(source), document))
	require.NotRegexp(t, `<script|<img|<b>|javascript:`, b.String())
	require.Equal(t, "A alert(1)", sections[0].Heading)
}

// TestAnchors checks the names of headings that GitHub gives them.
func TestAnchors(t *testing.T) {
	t.Parallel()
	source := "# What is `as_of`, and [who](a.md) *uses* it?\n\n## 401 & 403\n\n## Ü–ü – ok\n\n## Twice\n\n## Twice\n\n## twice!\n"
	_, sections := New(nil, nil, nil).parse([]byte(source))
	var ids []string
	for _, s := range sections {
		ids = append(ids, s.ID)
	}
	require.Equal(t, []string{
		"what-is-as_of-and-who-uses-it", "401--403", "üü--ok", "twice", "twice-1", "twice-2",
	}, ids)
}

// TestGuideLinks checks where links of a guide lead on its page: to pages that are served, or to the repository.
func TestGuideLinks(t *testing.T) {
	t.Parallel()
	p := New(nil, nil, nil)
	for link, want := range map[string]string{
		"faq.md": "faq", "faq.md#a-b": "faq#a-b", "#here": "#here", "README.md": "./", "README.md#start": "./#start",
		"../openapi.yaml": "../openapi.yaml", "pictures/chat.png": "pictures/chat.png",
		"lastseen.example.yaml": "lastseen.example.yaml", "https://example.com/a.md#b": "https://example.com/a.md#b",
		"mailto:a@example.com":      "mailto:a@example.com",
		"webhooks.schema.json":      "webhooks.schema.json",
		"../SECURITY.md#guarantees": repository + "SECURITY.md#guarantees",
		"decisions/pages.md":        repository + "docs/decisions/pages.md", "../deploy": repository + "deploy",
		"../README.md": repository + "README.md", "../docs/faq.md": "faq",
	} {
		require.Equal(t, want, p.guideLink(link), link)
	}
}

// TestSearchIsSmall checks the size of the search, and that it finds words at the end of a long section.
func TestSearchIsSmall(t *testing.T) {
	t.Parallel()
	search := string(served(t, guidesRoot+"search.json").plain)
	t.Logf("%d bytes", len(search))
	require.LessOrEqual(t, len(search), maxSearch)
	require.Contains(t, search, `{"page":"faq","title":"Frequently asked","sections":[["frequently-asked",`)

	start, words := abridge(strings.Repeat("one, two. ", 10) + `of Three (two) "three" Four`)
	require.Equal(t, strings.TrimSpace(strings.Repeat("one, two. ", 10)), start)
	require.Equal(t, "Three Four", words)
	start, words = abridge("A short text.")
	require.Equal(t, []string{"A short text.", ""}, []string{start, words})
}
