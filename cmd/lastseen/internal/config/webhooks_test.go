package config

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/live/webhooks"
)

// secretsFile returns a file with some secrets.
func secretsFile(t testing.TB, keys ...string) string {
	t.Helper()
	var content strings.Builder
	for _, key := range keys {
		key += strings.Repeat("-", 32-len(key))
		content.WriteString("whsec_" + base64.StdEncoding.EncodeToString([]byte(key)) + "\n")
	}
	name := filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.WriteFile(name, []byte(content.String()), 0o600))
	return name
}

func TestWebhooks(t *testing.T) {
	c := load(t, `
webhooks:
  second: {url: "http://10.0.0.1/", secrets-file: `+secretsFile(t, "a")+`, namespaces: [lobby], report: status, hold: 5m}
  first:
    url: https://user:password@hooks.example.com/secret-path?token=secret
    secrets-file: `+secretsFile(t, "a", "b")+`
    namespaces: [chat-*, room]
`)
	all := c.Webhooks()
	require.Len(t, all, 2)
	first, second := all[0], all[1]
	require.Equal(t, "first", first.Name)
	require.Equal(t, "https://user:password@hooks.example.com/secret-path?token=secret", first.URL.String())
	require.Len(t, first.Secrets, 2)
	require.Equal(t, webhooks.Online, first.Report)
	require.Zero(t, first.Hold)
	require.Nil(t, first.RootCAs)
	for namespace, matches := range map[string]bool{"chat-1": true, "room": true, "room-1": false, "lobby": false} {
		require.Equal(t, matches, first.Namespaces(namespace), namespace)
	}
	require.Equal(t, webhooks.Status, second.Report)
	require.Equal(t, 5*time.Minute, second.Hold)
	requireRoundTrip(t, &Config{Values: c.Values, namespaces: c.namespaces, keys: c.keys}) // what is printed has none

	var printed strings.Builder
	require.NoError(t, c.Print(&printed, "1"))
	require.Regexp(t, `\n#   first: # \S+lastseen.yaml:4\n#     secrets-file: \S+\n#     namespaces: \[chat-\*, room\]\n#   s`,
		printed.String())
	require.Contains(t, printed.String(), "#     report: status\n#     hold: 5m0s\n")
	require.NotRegexp(t, "hooks.example.com|secret-path|password", printed.String())
}

func TestWrongWebhooks(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("# nothing"), 0o600))
	good := "url: https://a.example.com, secrets-file: " + secretsFile(t, "a")
	takes := func(field string) string {
		d, _ := find(webhookFields(), field)
		return "; use " + d.Takes
	}
	for fields, want := range map[string]string{
		good:                                                              ".namespaces is missing; use a list",
		good + ", namespaces: [a], reports: x":                            ".reports: unknown setting, did you mean report?",
		good + ", namespaces: [a], report: all":                           `.report: "all" is not valid; use online or status`,
		good + ", namespaces: [a], hold: 1h":                              `.hold: "1h" is not valid; use 0, or a duration from 1s`,
		good + ", namespaces: [a], hold: 10":                              ".hold: ",
		good + ", namespaces: a":                                          ".namespaces holds a single value" + takes("namespaces"),
		good + ", namespaces: [a], ca-file: " + missing:                   ".ca-file: no such file or directory",
		good + ", namespaces: [a], ca-file: " + empty:                     ".ca-file: there is no certificate in PEM",
		"url: x, secrets-file: " + empty + ", namespaces: [a]":            ".url: is not an http or https URL; use an http or https URL",
		"url: 'http://a', secrets-file: " + empty + ", namespaces: [a]":   ".secrets-file: there is no secret",
		"url: 'http://a', secrets-file: " + missing + ", namespaces: [a]": ".secrets-file: no such file or directory",
	} {
		problems := problemsOf(t, "webhooks:\n  app: {"+fields+"}")
		require.Contains(t, problems[0], "lastseen.yaml:2: webhooks.app"+want, fields)
		require.NotContains(t, strings.Join(problems, "\n"), "a.example.com")
	}
	require.Contains(t, problemsOf(t, "webhooks:\n  a b: {"+good+", namespaces: [a]}")[0],
		"lastseen.yaml:2: webhooks: \"a b\" is not a valid name; use 1 to 56 of")
	require.Contains(t, problemsOf(t, "webhooks:\n  "+strings.Repeat("a", 57)+": {"+good+", namespaces: [a]}")[0],
		"is not a valid name")
}

// TestWebhooksNeedFeeds: a namespace without a changes feed has nothing to deliver, which is an error at the start.
func TestWebhooksNeedFeeds(t *testing.T) {
	file := secretsFile(t, "a")
	webhook := func(namespaces string) string {
		return "webhooks:\n  app: {url: https://a.example.com, secrets-file: " + file + ", namespaces: [" + namespaces + "]}\n"
	}
	const off = "namespaces: {chat: {changes: off}, room: {}}\n"
	require.Contains(t, problemsOf(t, off+webhook("chat"))[0], "webhooks.app.namespaces and namespaces.chat.changes is off")
	require.Contains(t, problemsOf(t, off+webhook("c*"))[0], "the namespace has no changes feed")
	load(t, off+webhook("room, lobby"))
	require.Contains(t, problemsOf(t, "changes: off\n"+webhook("lobby"))[0], "changes is off")
	require.Contains(t, problemsOf(t, "changes: off\nnamespaces: {room: {changes: on}}\n"+webhook("r*"))[0], "changes is off")
	load(t, "changes: off\nnamespaces: {room: {changes: on}}\n"+webhook("room"))
	adopted := "store: redis://127.0.0.1:6379\nnamespaces: {chat: {redis-key: online}}\n"
	require.Contains(t, problemsOf(t, adopted+webhook("chat"))[0], "a set that other programs can write")
	load(t, adopted+webhook("room"))
	unit := "store: redis://127.0.0.1:6379\nnamespaces: {chat: {redis-score-unit: ms}}\n"
	require.Contains(t, problemsOf(t, unit+webhook("chat"))[0], "a set that other programs can write")
	braces := "store: redis://127.0.0.1:6379\nredis-prefix: '{a}:'\n"
	require.Contains(t, problemsOf(t, braces+webhook("chat"))[0], "a prefix without braces")
}

// TestReloadedWebhooks: a reload says which webhooks changed, without what can be a secret.
func TestReloadedWebhooks(t *testing.T) {
	file := secretsFile(t, "a")
	of := func(rest string) *Config {
		return load(t, "webhooks:\n  app: {secrets-file: "+file+", namespaces: [a], "+rest+"}\n")
	}
	before := of("url: https://a.example.com")
	require.Equal(t, "none", Compare(before, of("url: https://a.example.com")).Summary())
	for _, rest := range []string{"url: https://b.example.com", "url: https://a.example.com, hold: 1m"} {
		d := Compare(before, of(rest))
		require.Equal(t, "webhooks.app changed", d.Summary())
		require.Empty(t, d.Refused)
	}
	content, err := os.ReadFile(secretsFile(t, "b"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	require.Equal(t, "webhooks.app changed", Compare(before, of("url: https://a.example.com")).Summary())
	require.Equal(t, "webhooks.app removed", Compare(before, load(t, "green: 1m")).Summary())
	require.Equal(t, "webhooks.app added", Compare(load(t, "green: 1m"), before).Summary())
}
