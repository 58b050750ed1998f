package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
)

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

	file := testserver.WriteConfig(t, testguide.Blocks(t, "configuration.md", "yaml")[2])
	code, _, printed := execute(t, "config", "--config", file)
	require.Equal(t, 2, code)
	printed = strings.ReplaceAll(printed, file, "wrong.yaml")
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(before+begin+printed+end+after), 0o644))
		return
	}
	require.Equal(t, shown, printed, "run this test with -update")
}
