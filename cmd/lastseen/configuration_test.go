package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
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

// TestHelpNamesEverySetting: with its default and its environment variable.
func TestHelpNamesEverySetting(t *testing.T) {
	code, help, _ := execute(t, "serve", "--help")
	require.Zero(t, code)
	help = strings.Join(strings.Fields(help), " ")
	for _, d := range config.Definitions() {
		if !d.Flag {
			require.NotContains(t, help, "--"+d.Name)
			continue
		}
		require.Contains(t, help, "--"+d.Name+"=")
		require.Contains(t, help, d.Env()+")")
		require.Contains(t, help, d.Default)
		require.Contains(t, help, " "+d.Group+" --", "headings")
	}
}

var update = flag.Bool("update", false, "write what is generated into the documents, instead of comparing")

// TestConfigurationErrors compares the messages in the document with those of the command.
func TestConfigurationErrors(t *testing.T) {
	const begin, end = "```text\n", "```"
	name, err := filepath.Abs("../../docs/configuration.md")
	require.NoError(t, err)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, _ := strings.Cut(string(text), begin)
	shown, after, _ := strings.Cut(rest, end)

	file := writeConfig(t, yamlBlocks(t, "configuration.md")[2])
	code, _, printed := execute(t, "config", "--config", file)
	require.Equal(t, 2, code)
	printed = strings.ReplaceAll(printed, file, "wrong.yaml")
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(before+begin+printed+end+after), 0o644))
		return
	}
	require.Equal(t, shown, printed, "run this test with -update")
}
