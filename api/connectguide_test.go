package api

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGuideOfConnectionsFitsSchema checks each frame in the texts against its schema, and that the guide has each kind.
func TestGuideOfConnectionsFitsSchema(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for _, name := range []string{"../docs/connections.md", "../README.md"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, line := range regexp.MustCompile(`(?m)^([<>]) (\{"(\w+)".*\})$`).FindAllSubmatch(text, -1) {
			from := map[string]string{">": "client", "<": "server"}[string(line[1])]
			if string(line[3]) == "wave" {
				continue // an example of a frame that does not exist
			}
			checkFrame(t, from, line[2])
			shown[from+"_"+string(line[3])] = true
		}
	}
	doc, err := loadFrames()
	require.NoError(t, err)
	for name := range doc.Components.Schemas {
		if isFrame := regexp.MustCompile(`^(client|server)_`).MatchString(name); isFrame && name != "server_reset" {
			require.Contains(t, shown, name)
		}
	}
}
