package lastseen_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/docs"
)

// documents returns the Markdown files of this module, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if filepath.Ext(name) == ".md" {
			content, err := os.ReadFile(name)
			all[name] = string(content)
			return err
		}
		return nil
	}))
	require.NotEmpty(t, all)
	return all
}

// anchors returns the anchors of the headings in a document, as GitHub makes them.
func anchors(document string) map[string]bool {
	all, next := map[string]bool{}, docs.Anchors{}
	document = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(document, "")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(document, -1) {
		all[next.Next(regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading[1], "$1"))] = true
	}
	return all
}

// TestLinksLeadSomewhere: each relative link in the documents names a file or a folder, and a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := documents(t)
	for name, document := range all {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(document, -1) {
			if strings.Contains(link[1], ":") || strings.HasPrefix(link[1], "/") { // to sites, and to paths of a server
				continue
			}
			target, anchor, _ := strings.Cut(link[1], "#")
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			_, err := os.Stat(path)
			require.NoError(t, err, "%s: %s", name, link[1])
			if anchor != "" {
				require.True(t, anchors(all[path])[anchor], "%s: %s", name, link[1])
			}
		}
	}
}
