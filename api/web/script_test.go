package web

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write lastseen.min.js")

// maxScript is how large lastseen.js can be for those who download it, in bytes.
const maxScript = 8 << 10

// served returns the page at a path.
func served(t *testing.T, path string) page {
	t.Helper()
	p, err := New(nil)[path]()
	require.NoError(t, err)
	return p
}

// TestScriptIsSmall checks the promised size of lastseen.js.
func TestScriptIsSmall(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, len(served(t, "/lastseen.js").gzipped), maxScript)
}

// TestScriptIsOneModule checks that lastseen.js loads nothing else, and that it names no other host: the standard
// names of XML are not addresses.
func TestScriptIsOneModule(t *testing.T) {
	t.Parallel()
	source, err := scriptSource()
	require.NoError(t, err)
	code := strings.ReplaceAll(string(source), "http://www.w3.org/2000/svg", "")
	require.NotRegexp(t, `(?m)^\s*import\b|\bimport\(|\bfrom '`, code)
	require.NotRegexp(t, `\b(https?|wss?)://\w`, code)
	require.NotRegexp(t, `\beval\(|new Function\(|innerHTML|document\.write`, code)
	require.Len(t, regexp.MustCompile(`(?m)^\s*export\b`).FindAllString(code, -1), 1)
	require.Regexp(t, `export \{[^}]*\}\s*$`, code)
}

// TestScriptHasAllFragments checks that each file in the folder lastseen is part of lastseen.js, once.
func TestScriptHasAllFragments(t *testing.T) {
	t.Parallel()
	entries, err := fs.ReadDir(files, "lastseen")
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".js"))
	}
	listed := fragments()
	require.Equal(t, "exports", listed[len(listed)-1])
	require.ElementsMatch(t, names, listed)
	module, err := scriptSource()
	require.NoError(t, err)
	for _, name := range listed {
		fragment, err := files.ReadFile("lastseen/" + name + ".js")
		require.NoError(t, err)
		require.Equal(t, 1, bytes.Count(module, fragment), name)
		require.True(t, bytes.HasSuffix(fragment, []byte("\n")), "%s: the next one begins on a line of its own", name)
	}
}

// TestScriptIsCurrent checks that lastseen.min.js is made of the fragments as they are. With -update, it writes that.
func TestScriptIsCurrent(t *testing.T) {
	t.Parallel()
	source, err := scriptSource()
	require.NoError(t, err)
	if *update {
		minify := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../tools/minify/go.mod",
			"esbuild", "--minify", "--format=esm", "--target=es2024", "--charset=utf8")
		minify.Stdin = bytes.NewReader(source)
		code, err := minify.Output()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(minified, append(sourceLine(source), code...), 0o644))
		return
	}
	small, err := files.ReadFile(minified)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(small, sourceLine(source)), "%s is stale: run make generate", minified)
	require.Equal(t, string(small[len(sourceLine(source)):]), string(served(t, "/lastseen.js").plain))
}

// TestEmbeddedFilesAreServed checks that the binary carries no file that nobody can get. The guide to errors is made of
// a template.
func TestEmbeddedFilesAreServed(t *testing.T) {
	t.Parallel()
	var contents []string
	for _, path := range Paths() {
		contents = append(contents, string(served(t, path).plain))
	}
	require.NoError(t, fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		if entry.IsDir() || name == "errors.html" || name == minified || path.Dir(name) == "lastseen" {
			return nil
		}
		content, err := files.ReadFile(name)
		require.NoError(t, err)
		require.True(t, slices.Contains(contents, string(content)), "%s is not served", name)
		return nil
	}))
}
