package web

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxScript is how large lastseen.js can be for those who download it, in bytes.
const maxScript = 10 << 10

func served(t *testing.T, path string) page {
	t.Helper()
	p, err := New(nil, nil, nil)[path]()
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
	code := strings.ReplaceAll(string(served(t, "/lastseen.js").plain), "http://www.w3.org/2000/svg", "")
	require.NotRegexp(t, `\bimport\b[^.]|\bfrom["']`, code)
	require.NotRegexp(t, `\b(https?|wss?)://\w`, code)
	require.NotRegexp(t, `\beval\(|new Function\(|innerHTML|document\.write`, code)
	require.Len(t, regexp.MustCompile(`\bexport\b`).FindAllString(code, -1), 1)
	require.Regexp(t, `export\{[^}]*\};\s*$`, code)
}

// TestEmbeddedFilesAreServed checks that the binary carries no file that nobody can get. The guides are made of a
// template.
func TestEmbeddedFilesAreServed(t *testing.T) {
	t.Parallel()
	var contents []string
	for _, path := range Paths() {
		contents = append(contents, string(served(t, path).plain))
	}
	require.NoError(t, fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		if entry.IsDir() || name == "guide.html" {
			return nil
		}
		content, err := files.ReadFile(name)
		require.NoError(t, err)
		require.True(t, slices.Contains(contents, string(content)), "%s is not served", name)
		return nil
	}))
}
