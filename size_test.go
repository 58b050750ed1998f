package lastseen_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFilesStayReadable: a file is a screenful or a few.
func TestFilesStayReadable(t *testing.T) {
	for _, s := range sources(t) {
		require.LessOrEqual(t, s.lines, 400, "%s/%s", s.dir, s.name)
	}
}

// sizes are what the code has grown to. A number may only fall: to add to one, first take something away. Folders that
// are not listed have at most 25 files of production code and 35 of tests.
func sizes() map[string]int {
	return map[string]int{
		"lines":  60_700, // of production code in Go, Lua and JavaScript, rounded up to hundreds
		"arrows": 134,    // imports of one package of this project by another, without tests
	}
}

// TestSizeOnlyFalls: with -v, it prints the sizes.
func TestSizeOnlyFalls(t *testing.T) {
	measured := map[string]int{"lines": scriptLines(t), "arrows": 0}
	arrows := map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest() {
			measured["tests in "+s.dir]++
			continue
		}
		measured["files in "+s.dir]++
		measured["lines"] += s.lines
		for _, imported := range s.imports() {
			if strings.HasPrefix(imported, module) {
				arrows[s.dir+" to "+imported] = true
			}
		}
	}
	measured["lines"] = (measured["lines"] + 99) / 100 * 100
	measured["arrows"] = len(arrows)
	maps.DeleteFunc(measured, func(what string, n int) bool {
		return strings.HasPrefix(what, "files in ") && n <= 25 || strings.HasPrefix(what, "tests in ") && n <= 35
	})
	for _, what := range slices.Sorted(maps.Keys(measured)) {
		t.Logf("%s: %d", what, measured[what])
	}
	for what, limit := range sizes() {
		require.GreaterOrEqual(t, measured[what], limit, "%s: it fell; write the new number into sizes()", what)
	}
	for what, n := range measured {
		require.LessOrEqual(t, n, sizes()[what], what)
	}
}

// scriptLines counts the lines of production code that is not Go. One file is generated from the others.
func scriptLines(t *testing.T) (lines int) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == filepath.FromSlash("api/web/lastseen.js") {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || otherModule(name) && name != ".") {
			return fs.SkipDir
		}
		if extension := filepath.Ext(name); extension == ".lua" || extension == ".js" {
			content, err := os.ReadFile(name)
			n := bytes.Count(content, []byte("\n"))
			require.True(t, extension == ".js" || n <= 250, "%s: %d lines", name, n)
			lines += n
			return err
		}
		return nil
	}))
	return lines
}
