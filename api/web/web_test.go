package web

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesAreUnpackedOnce checks that a client without compression costs no more than others.
func TestPagesAreUnpackedOnce(t *testing.T) {
	load := New(nil, nil, nil)["/docs/swagger-ui-bundle.js"]
	first, err := load()
	require.NoError(t, err)
	second, err := load()
	require.NoError(t, err)
	require.Same(t, &first.plain[0], &second.plain[0])
	require.Greater(t, len(first.plain), len(first.gzipped))
}

// TestDashboardModules checks that every module of the dashboard is served, and that modules import only these and
// lastseen.js, by relative paths.
func TestDashboardModules(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("dashboard/*.js")
	require.NoError(t, err)
	imports := regexp.MustCompile(`(?m)^import .* from '(.*)'$`)
	for _, path := range paths {
		require.Contains(t, New(nil, nil, nil), "/"+filepath.ToSlash(path))
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, found := range imports.FindAllStringSubmatch(string(source), -1) {
			if found[1] != "../lastseen.js" {
				require.FileExists(t, filepath.Join("dashboard", found[1]), path)
			}
		}
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(`, string(source), path)
	}
}
