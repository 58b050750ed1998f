package scenarios

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestAvatarsExample: pages have the status of each user, and "unknown" when lastseen is away.
func TestAvatarsExample(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	example := testenv.Command(testserver.Build(t, "examples/avatars"), "-listen", "127.0.0.1:0", "-lastseen", s.URL)
	stderr, err := example.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, example.Start())
	t.Cleanup(func() {
		_ = example.Process.Kill()
		_ = example.Wait()
	})
	lines := bufio.NewScanner(stderr)
	require.True(t, lines.Scan())
	_, url, ok := strings.Cut(lines.Text(), "showing avatars at ")
	require.True(t, ok, lines.Text())
	go io.Copy(io.Discard, stderr)
	shows := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			response, err := http.Get(url)
			if err != nil {
				return false
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			return err == nil && strings.Contains(string(body), text)
		}, time.Minute, 50*time.Millisecond)
	}
	shows(`title="green">●</span> alice`)
	shows(`title="grey">●</span> bob`)
	s.Kill()
	shows(`title="unknown">●</span> alice`)
}
