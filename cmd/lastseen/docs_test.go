package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// yamlBlocks returns the YAML examples of a document.
func yamlBlocks(t *testing.T, name string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// tutorialExample returns the n-th example of the guide for users of the Redis tutorial, for another Redis.
func tutorialExample(t *testing.T, n int, url string) string {
	t.Helper()
	blocks := yamlBlocks(t, "from-the-redis-tutorial.md")
	require.Len(t, blocks, 2)
	return strings.ReplaceAll(blocks[n], "redis://127.0.0.1:6379", url)
}
