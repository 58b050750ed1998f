package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/redisstore"
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

var update = flag.Bool("update", false, "write what is generated into the documents, instead of comparing")

// TestSettingsTable holds the table of all settings to their definition.
func TestSettingsTable(t *testing.T) {
	const name, begin, end = "../../docs/configuration.md", "-update -->\n", "<!-- end -->"
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found)
	table, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(before+begin+settingsTable()+end+after), 0o644))
		return
	}
	require.Equal(t, settingsTable(), table, "run this test with -update")
}

func settingsTable() string {
	var b strings.Builder
	b.WriteString("\n| flag | environment | in the file | default | value | in a namespace | reload | meaning |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	group := ""
	for _, d := range definitions() {
		if d.group != group {
			group = d.group
			fmt.Fprintf(&b, "| **%s** | | | | | | | |\n", group)
		}
		when := func(shown string, is bool) string {
			if is && shown != "" {
				return shown
			}
			return ""
		}
		cells := []string{
			when("`--"+d.name+"`", d.flag), when("`"+d.env()+"`", d.flag), when("`"+d.name+"`", d.file),
			when("`"+d.standard+"`", d.standard != ""), d.takes, when("yes", d.namespace), when("yes", d.reload), d.help,
		}
		if d.namespace && !d.file {
			cells[2], cells[5] = "", "`"+d.name+"`, only there"
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n")
	return regexp.MustCompile(`\|  +`).ReplaceAllString(b.String(), "| ")
}

// TestHelpNamesEverySetting: with its default and its environment variable.
func TestHelpNamesEverySetting(t *testing.T) {
	code, help, _ := execute(t, "serve", "--help")
	require.Zero(t, code)
	help = strings.Join(strings.Fields(help), " ")
	for _, d := range definitions() {
		if !d.flag {
			require.NotContains(t, help, "--"+d.name)
			continue
		}
		require.Contains(t, help, "--"+d.name+"=")
		require.Contains(t, help, d.env()+")")
		require.Contains(t, help, d.standard)
		require.Contains(t, help, " "+d.group+" --", "headings")
	}
}

// TestDefinitions: the defaults and bounds are what the code that takes them says.
func TestDefinitions(t *testing.T) {
	for _, d := range definitions() {
		require.NotEmpty(t, d.help, d.name)
		require.NotEmpty(t, d.group, d.name)
		require.Regexp(t, `\.$`, d.help)
		if d.standard != "" {
			require.NoError(t, d.set(&settings{}, d.standard), d.name)
		}
	}
	c, err := sources{}.load()
	require.NoError(t, err)
	shards, _ := find(definitions(), "redis-shards")
	require.Equal(t, []int{redisstore.MinShards, redisstore.MaxShards}, []int{shards.low, shards.high})
	require.Equal(t, "lastseen.db", c.Store)
	require.Empty(t, c.warnings)
}

// TestConfigurationExamples loads what the documents show.
func TestConfigurationExamples(t *testing.T) {
	example, err := os.ReadFile("../../docs/lastseen.example.yaml")
	require.NoError(t, err)
	blocks := yamlBlocks(t, "configuration.md")
	require.Len(t, blocks, 3)
	keys, err := loadText(t, blocks[1])
	require.NoError(t, err)
	require.Equal(t, []string{"backend", "moderation"}, keys.keyNames())
	requireRoundTrip(t, keys)
	for _, content := range []string{string(example), blocks[0]} {
		c, err := loadText(t, content)
		require.NoError(t, err)
		require.Empty(t, c.warnings)
		require.NotEmpty(t, c.names())
		requireRoundTrip(t, c)
	}
}

// TestConfigurationErrors compares the messages in the document with what is said.
func TestConfigurationErrors(t *testing.T) {
	const begin, end = "```text\n", "```"
	name, err := filepath.Abs("../../docs/configuration.md")
	require.NoError(t, err)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, _ := strings.Cut(string(text), begin)
	shown, after, _ := strings.Cut(rest, end)

	file := writeConfig(t, yamlBlocks(t, "configuration.md")[2])
	code, _, said := execute(t, "config", "--config", file)
	require.Equal(t, 2, code)
	said = strings.ReplaceAll(said, file, "wrong.yaml")
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(before+begin+said+end+after), 0o644))
		return
	}
	require.Equal(t, shown, said, "run this test with -update")
}
