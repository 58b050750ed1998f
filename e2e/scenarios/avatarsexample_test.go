package scenarios

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestAvatarsExample: pages have the status of each user, and "unknown" when lastseen is away.
func TestAvatarsExample(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	url, _ := startService(t, "examples/avatars", "showing avatars at ", "-lastseen", s.URL)
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
		}, scenarioWait, 50*time.Millisecond)
	}
	shows(`title="green">●</span> alice`)
	shows(`title="grey">●</span> bob`)
	s.Kill()
	shows(`title="unknown">●</span> alice`)
}
