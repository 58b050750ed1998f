package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

func TestVersionFlag(t *testing.T) {
	code, command, _ := runInProcess("version")
	require.Zero(t, code)
	require.Regexp(t, `^lastseen .* go1\.`, command)
	for _, line := range []string{"--version", "serve --version"} {
		code, flag, log := runInProcess(strings.Fields(line)...)
		require.Zero(t, code, log)
		require.Equal(t, command, flag)
	}
	code, help, _ := runInProcess("--help")
	require.Zero(t, code)
	require.Contains(t, help, "serve")
}

func TestUnknownCommands(t *testing.T) {
	const all = `; the commands are serve, init, config, health, backup, restore, copy, key, token, version, completion, ping, leave, get, list, counts, watch, devices, availability, namespaces, forget, delete-namespace, export, import, load, webhook: see lastseen --help`
	for line, want := range map[string]string{
		"sevre":              `unknown command "sevre", did you mean serve?`,
		"server":             `unknown command "server", did you mean serve?`,
		"confg":              `unknown command "confg", did you mean config?`,
		"ehalth":             `unknown command "ehalth", did you mean health?`,
		"help":               `unknown command "help", did you mean --help?`,
		"run":                `unknown command "run"` + all,
		"run --green":        `unknown command "run"` + all,
		"serve foo":          `unexpected argument foo`,
		"key nwe":            `unexpected argument nwe, did you mean "new"?`,
		"--lisen :1":         `unknown flag --lisen, did you mean "--listen"?`,
		"--vresion":          `unknown flag --vresion, did you mean "--version"?`,
		"a\x1b[31m\n":        `unknown command "a\x1b[31m\n"` + all,
		"redis://u:secret@h": `unknown command "redis://u:xxxxx@h:6379", did you mean --store?`,
	} {
		code, out, log := runInProcess(strings.Split(line, " ")...)
		require.Equal(t, 2, code, line)
		require.Empty(t, out, line)
		require.Equal(t, "lastseen: "+want+"\n", log, line)
	}
}

// TestCommandsHaveTheirOwnFlags beside those of settings, which are captured as text.
func TestCommandsHaveTheirOwnFlags(t *testing.T) {
	var own struct {
		config.CommonSettings
		Count int
		Wait  time.Duration `default:"3s"`
		All   bool
		Users []string
	}
	texts := map[string]string{}
	line, err := kong.New(&own, kong.PostBuild(func(k *kong.Kong) error {
		return kong.Visit(k.Model, captureSettings(texts))
	}))
	require.NoError(t, err)
	_, err = line.Parse([]string{
		"--count", "7", "--all", "--users", "a,b", "--users", "c", "--listen",
		"not an address",
	})
	require.NoError(t, err)
	require.Equal(t, 7, own.Count)
	require.Equal(t, 3*time.Second, own.Wait)
	require.True(t, own.All)
	require.Equal(t, []string{"a", "b", "c"}, own.Users)
	require.Equal(t, map[string]string{"listen": "not an address"}, texts)
	_, err = line.Parse([]string{"--count", "many"})
	require.ErrorContains(t, err, "--count")
}

// TestCompletion: with the script, a shell asks the program, which answers nothing else then.
func TestCompletion(t *testing.T) {
	for shell, script := range map[string]string{
		"bash": "complete -o default", "zsh": "bashcompinit", "fish": "complete -f -c lastseen",
	} {
		code, out, log := runInProcess("completion", shell)
		require.Zero(t, code, log)
		require.Contains(t, out, script)
	}
	code, _, log := runInProcess("completion", "tcsh")
	require.Equal(t, 2, code)
	require.Contains(t, log, `must be one of "bash","zsh","fish"`)
	for line, words := range map[string]string{
		"lastseen cou":                 "counts",
		"lastseen webhook ":            "enable listen",
		"lastseen list chat --stat":    "--status",
		"lastseen list chat --status ": "green grey yellow",
		"lastseen serve --admin":       "--admin-listen",
		"lastseen restore ":            "",
	} {
		t.Setenv("COMP_LINE", line)
		t.Setenv("COMP_POINT", strconv.Itoa(len(line)))
		code, out, log := runInProcess()
		require.Zero(t, code, log)
		require.ElementsMatch(t, strings.Fields(words), strings.Fields(out), line)
	}
}
