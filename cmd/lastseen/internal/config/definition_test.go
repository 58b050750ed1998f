package config

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/redisstore"
)

// yamlBlocks returns the YAML examples of a document.
func yamlBlocks(t *testing.T, name string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/" + name)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

var update = flag.Bool("update", false, "write what is generated into the documents, instead of comparing")

// TestSettingsTable compares the table of all settings with their definitions.
func TestSettingsTable(t *testing.T) {
	testguide.Generated(t, "../../../../docs/settings.md", settingsTable(), *update)
}

func settingsTable() string {
	var b strings.Builder
	group := ""
	for _, d := range Definitions() {
		if d.Group != group {
			group = d.Group
			fmt.Fprintf(&b, "\n## %s\n\n| setting | default | value | scope | meaning |\n", group)
			b.WriteString("| --- | --- | --- | --- | --- |\n")
		}
		scope := []string{} // where it can be set, and when it takes effect
		switch {
		case d.Namespace && !d.File:
			scope = append(scope, "only a namespace")
		case d.Namespace:
			scope = append(scope, "namespace")
		case !d.File:
			scope = append(scope, "not in the file")
		}
		if d.Reload {
			scope = append(scope, "reload")
		}
		initial := ""
		if d.Default != "" {
			initial = "`" + d.Default + "`"
		}
		cells := []string{"`" + d.Name + "`", initial, d.Takes, strings.Join(scope, ", "), d.Help}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n")
	return regexp.MustCompile(`\|  +`).ReplaceAllString(b.String(), "| ")
}

// TestDefinitions checks that defaults and bounds are those of the code that uses them.
func TestDefinitions(t *testing.T) {
	for _, d := range Definitions() {
		require.NotEmpty(t, d.Help, d.Name)
		require.NotEmpty(t, d.Group, d.Name)
		require.Regexp(t, `\.$`, d.Help)
		require.NotNil(t, d.format.parse, d.Name)
		if d.Default != "" {
			require.NoError(t, d.parse(&Settings{}, d.Default), d.Name)
		}
	}
	c, err := Loader{}.Load()
	require.NoError(t, err)
	shards, _ := Find("redis-shards")
	require.Equal(t, []int{redisstore.MinShards, redisstore.MaxShards}, []int{shards.low, shards.high})
	for name, longest := range map[string]time.Duration{
		"jwt-leeway": auth.MaxLeeway, "disconnect-grace": connections.MaxGrace, "redial-wait": api.MaxRedialWait,
		"redis-max-lag": redisstore.MaxLag,
	} {
		d, _ := Find(name)
		require.NoError(t, d.parse(&Settings{}, fmt.Sprintf("%dms", longest.Milliseconds())), name)
		require.Error(t, d.parse(&Settings{}, fmt.Sprintf("%dms", longest.Milliseconds()+1)), name)
	}
	lag, _ := Find("redis-max-lag")
	require.NoError(t, lag.parse(&Settings{}, redisstore.MinLag.String()))
	require.Error(t, lag.parse(&Settings{}, (redisstore.MinLag-time.Millisecond).String()))
	require.Equal(t, "lastseen.db", c.Store)
	require.Empty(t, c.Warnings)
}

// TestConfigurationExamples loads what the documents show.
func TestConfigurationExamples(t *testing.T) {
	example, err := os.ReadFile("../../../../docs/lastseen.example.yaml")
	require.NoError(t, err)
	blocks := yamlBlocks(t, "configuration.md")
	require.Len(t, blocks, 3)
	keys := load(t, blocks[1])
	require.Equal(t, []string{"backend", "moderation"}, keys.keyNames())
	requireRoundTrip(t, keys)
	for _, content := range []string{string(example), blocks[0], yamlBlocks(t, "namespaces.md")[0]} {
		c := load(t, content)
		require.Empty(t, c.Warnings)
		require.NotEmpty(t, c.Names())
		requireRoundTrip(t, c)
	}
}

// TestSettingsAreWarnedOf: no setting has the name of a variable that Kubernetes would set.
func TestSettingsAreWarnedOf(t *testing.T) {
	for _, d := range Definitions() {
		require.False(t, setByOthers.MatchString(d.Env()), "%s would never be warned of, and Kubernetes would set it",
			d.Env())
	}
}
