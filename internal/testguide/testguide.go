// Package testguide reads the code in the guides. It is for tests only.
package testguide

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Blocks returns the code blocks of a guide, a file in docs, in a language. Tests run two folders below the root.
func Blocks(t *testing.T, name, language string) (blocks []string) {
	t.Helper()
	guide, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		blocks = append(blocks, block[1])
	}
	require.NotEmpty(t, blocks)
	return blocks
}

// Block returns the only one of some blocks with a text.
func Block(t *testing.T, blocks []string, text string) string {
	t.Helper()
	var found []string
	for _, b := range blocks {
		if strings.Contains(b, text) {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, text)
	return found[0]
}
