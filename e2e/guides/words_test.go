package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxWords is the longest page that people read from its beginning to its end.
const maxWords = 1500

// TestGuidesAreShort counts the words of each page in docs as `wc -w` does, without what is looked up and not read:
// code blocks (fenced, or indented by four spaces after an empty line) and the rows of tables. The
// entries of docs/errors.md are looked up in the same way, so it counts each of its sections as a page.
func TestGuidesAreShort(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	long := map[string]int{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		pages := []string{string(text)}
		if filepath.Base(name) == "errors.md" {
			pages = strings.Split(string(text), "\n## ")
		}
		for _, page := range pages {
			title, _, _ := strings.Cut(page, "\n")
			if words := len(strings.Fields(prose(page))); words > maxWords {
				long[filepath.Base(name)+": "+title] = words
			}
		}
	}
	require.Empty(t, long, "split these, or say less")
}

// TestProse: what is read counts, and the rest does not.
func TestProse(t *testing.T) {
	t.Parallel()
	const page = "# One two\n\nthree\nfour\n\n    five six\n\n- seven\n\n  - eight\n\n| nine |\n| --- |\n\n" +
		"```js\nten()\n```\n\n  | eleven |\n\neight\n"
	require.Equal(t, strings.Fields("# One two three four - seven - eight eight"), strings.Fields(prose(page)))
}

// prose returns a page without code blocks and tables.
func prose(page string) string {
	page = regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(page, "")
	page = regexp.MustCompile(`(?m)^ *\|.*$`).ReplaceAllString(page, "")
	return regexp.MustCompile(`(?m)^\n(    .*\n)+`).ReplaceAllString(page, "\n")
}

// TestMapNamesEveryPage: docs/README.md links each page, so a reader finds it.
func TestMapNamesEveryPage(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("../../docs/README.md")
	require.NoError(t, err)
	names, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, name := range names {
		if base := filepath.Base(name); base != "README.md" {
			require.Contains(t, string(index), "]("+base+")")
		}
	}
}
