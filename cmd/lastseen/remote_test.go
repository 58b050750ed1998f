package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
)

const cliGuide = "../../docs/cli.md"

// TestCommandLineGuide runs the commands of the guide on each store, and compares what they print but for times.
func TestCommandLineGuide(t *testing.T) {
	guide, err := os.ReadFile(cliGuide)
	require.NoError(t, err)
	_, session, found := strings.Cut(string(guide), "```console\n")
	require.True(t, found)
	session, _, _ = strings.Cut(session, "```")
	steps := strings.Split(session, "$ lastseen ")[1:]
	require.Greater(t, len(steps), 5)
	times := regexp.MustCompile(`\d+s ago *|\d{4}-\d\d-\d\dT[\d:.]+Z`)
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, args...)
		for _, step := range steps {
			line, want, _ := strings.Cut(step, "\n")
			var words []string
			for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1) {
				words = append(words, strings.Trim(word, `"`))
			}
			code, out, log := runInProcess(append(words, "--server", s.URL)...)
			require.Zero(t, code, "%s: %s", line, log)
			require.Equal(t, times.ReplaceAllString(want, "TIME"), times.ReplaceAllString(out, "TIME"), line)
		}
	})
}

// TestRemoteCommandsRefuse: what is wrong with a command line is said before anything is sent, with another exit code
// than what the server refuses.
func TestRemoteCommandsRefuse(t *testing.T) {
	s := testserver.Start(t, "--config", testserver.WriteConfig(t,
		"keys: {reader: {hash: "+testserver.HashOf("ls_reader")+", scopes: [read], namespaces: [chat]}}"))
	key := testserver.WriteFile(t, "key", []byte("ls_reader\n"))
	for line, want := range map[string]string{
		"ping chat":                                        `2 lastseen: expected "<user> ..."`,
		"list chat --status red":                           `2 lastseen: --status must be one of`,
		"list chat --limit 0":                              `2 lastseen: list: --limit: use 1 to 1000000, or --all`,
		"list chat --limit 9223372036854775807":            `2 lastseen: list: --limit: use 1 to 1000000, or --all`,
		"ping chat alice --kind web":                       `2 lastseen: ping: --kind and --activity need --device`,
		"ping chat alice --device d --kind banana":         `2 lastseen: --kind must be one of`,
		"leave chat alice --kind web":                      `2 lastseen: leave: --kind and --activity need --device`,
		"leave chat alice --after 2m":                      `2 lastseen: leave: --after: use a time up to 1m`,
		"get bad/name alice":                               `2 lastseen: <namespace>: `,
		"get chat " + strings.Repeat("x", 600):             `2 lastseen: get: `,
		"ping chat alice ..":                               `2 lastseen: ping: `,
		"watch chat ..":                                    `2 lastseen: watch: `,
		"forget chat ..":                                   `2 lastseen: <user>: `,
		"watch chat" + strings.Repeat(" u", 1001):          `2 lastseen: watch: use up to 1000 users`,
		"list chat --from yesterday":                       `2 lastseen: --from: `,
		"availability chat alice gone":                     `2 lastseen: [<availability>] must be one of`,
		"availability chat alice --for 1h":                 `2 lastseen: availability: --for and --note are for`,
		"availability chat alice busy --for=-1h":           `2 lastseen: availability: --for: use a time from now on`,
		"delete-namespace chat":                            `2 lastseen: delete-namespace: --confirm: repeat the name`,
		"delete-namespace chat --confirm chta":             `2 lastseen: delete-namespace: --confirm: repeat the name`,
		"get chat alice --server localhost:8080":           `2 lastseen: --server: URL of the server: use http://`,
		"get chat alice --key-file missing":                `1 lastseen: open missing: no such file`,
		"get chat alice --server http://127.0.0.1:1":       `1 lastseen: Post "http://127.0.0.1:1/v1/`,
		"get chat alice --server " + s.URL:                 `1 lastseen: unauthenticated: `,
		"watch chat --server " + s.URL:                     `1 lastseen: unauthenticated: `,
		"get other a --key-file " + key:                    `1 lastseen: forbidden: `,
		"ping chat alice --key-file " + key:                `1 lastseen: forbidden: `,
		"namespaces --key-file " + filepath.Dir(key) + "/": `1 lastseen: read `,
	} {
		t.Setenv("LASTSEEN_SERVER", s.URL)
		code, out, log := runInProcess(strings.Fields(line)...)
		require.Empty(t, out, line)
		require.Contains(t, fmt.Sprint(code, " ", log), want, line)
	}
	code, out, log := runInProcess("get", "chat", "alice", "--json", "--key-file", key)
	require.Zero(t, code, log)
	require.Regexp(t, `^{"user":"alice","status":"grey","left":false,"as_of":"[^"]+"}\n$`, out)
}

// TestListLimits: a list says when it has not all users.
func TestListLimits(t *testing.T) {
	s := testserver.Start(t)
	t.Setenv("LASTSEEN_SERVER", s.URL)
	ping := []string{"ping", "chat"}
	for n := range 60 {
		ping = append(ping, fmt.Sprintf("user-%02d", n))
	}
	code, out, log := runInProcess(ping...)
	require.Zero(t, code, log)
	require.Equal(t, "60 recorded\n", out)
	for line, users := range map[string]int{
		"": 50, "--limit 7": 7, "--limit 60": 60, "--all": 60, "--all --limit 7": 60,
	} {
		code, out, log := runInProcess(append([]string{"list", "chat", "--json"}, strings.Fields(line)...)...)
		require.Zero(t, code, log)
		require.Equal(t, users, strings.Count(out, "\n"), line)
		require.Equal(t, users < 60, strings.Contains(log, "there are more users"), line)
	}
}

// TestCommandsReference compares the commands in docs/cli.md with their definitions.
func TestCommandsReference(t *testing.T) {
	testguide.Generated(t, cliGuide, commandsReference(t), *update)
}

// commandsReference describes the commands and what is their own: settings are in docs/settings.md.
func commandsReference(t *testing.T) string {
	line, err := newCommandLine(t.Context(), cli.Streams{})
	require.NoError(t, err)
	var b strings.Builder
	for _, command := range line.Model.Leaves(true) {
		summary := strings.TrimSuffix(command.Summary(), " [flags]")
		fmt.Fprintf(&b, "\n### `%s`\n\n%s\n", summary, command.Help)
		var rows []string
		for _, argument := range command.Positional {
			rows = append(rows, fmt.Sprintf("| `<%s>` | %s |\n", argument.Name, argument.Help))
		}
		settings := false
		for _, flag := range command.Flags {
			_, setting := config.Find(flag.Name)
			settings = settings || setting
			if common := slices.Contains([]string{"server", "key-file", "json"}, flag.Name); !setting && !common {
				rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", flagUsage(flag), flag.Help))
			}
		}
		if settings {
			b.WriteString("\nIt has [settings](settings.md) as flags.\n")
		}
		if len(rows) > 0 {
			b.WriteString("\n| | |\n| --- | --- |\n" + strings.Join(rows, ""))
		}
	}
	return b.String() + "\n"
}

func flagUsage(flag *kong.Flag) string {
	if flag.IsBool() {
		return "--" + flag.Name
	}
	return "--" + flag.Name + " " + flag.FormatPlaceHolder()
}
