package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestAccessGuide runs what docs/access.md says, and the token is taken.
func TestAccessGuide(t *testing.T) {
	for _, tool := range []string{"sh", "openssl", "curl"} {
		testenv.Program(t, tool, tool)
	}
	guide, err := os.ReadFile("../../docs/access.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	config := regexp.MustCompile("(?s)```yaml\n(jwt-secret-file: .*?)```").FindStringSubmatch(string(guide))
	require.Len(t, blocks, 2)
	require.NotNil(t, config)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lastseen.yaml"), []byte(config[1]), 0o600))
	require.NoError(t, os.Symlink(testserver.Binary(t), filepath.Join(dir, "lastseen")))
	sh := func(script string) string {
		cmd := testenv.Command("sh", "-euc", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, out)
		return string(out)
	}
	sh(blocks[0][1])
	s := testserver.Start(t, "--config", filepath.Join(dir, "lastseen.yaml"), "--jwt-secret-file",
		filepath.Join(dir, "jwt-secret"))
	out := sh(strings.ReplaceAll(blocks[1][1], "http://127.0.0.1:8080", s.URL))
	require.Contains(t, out, `"status":"green"`)
}
