package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConfigMasksURLs: a query may hold a key, and a user without a password may be one.
func TestConfigMasksURLs(t *testing.T) {
	for content, shown := range map[string]string{
		names + "jwt-jwks-url: https://id.example.com/keys?key=geheim":               "jwt-jwks-url: https://id.example.com/keys?xxxxx # ",
		names + "jwt-jwks-url: https://id.example.com?geheim":                        "jwt-jwks-url: https://id.example.com?xxxxx # ",
		names + "jwt-jwks-url: 'https://id.example.com:8443/a%2Fb#geheim'":           "jwt-jwks-url: https://id.example.com:8443/a%2Fb # ",
		names + "jwt-jwks-url: https://id.example.com/.well-known/jwks.json":         "jwt-jwks-url: https://id.example.com/.well-known/jwks.json # ",
		"store: redis://geheim@127.0.0.1:1":                                          "store: redis://xxxxx@127.0.0.1:1 # ",
		"store: redis://geheim:@127.0.0.1:1":                                         "store: redis://xxxxx@127.0.0.1:1 # ",
		"store: redis://user:geheim@127.0.0.1:1":                                     "store: redis://user:xxxxx@127.0.0.1:1 # ",
		"store: redis+sentinel://geheim@h:1?master=m":                                "store: redis+sentinel://xxxxx@h:1?master=m # ",
		"store: redis+cluster://geheim@h:1\nnamespaces: {a: {redis-score-unit: ms}}": "store: redis+cluster://xxxxx@h:1 # ",
	} {
		code, stdout, stderr := execute(t, "config", "--config", writeConfig(t, content))
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "\n"+shown, content)
		require.NotContains(t, stdout+stderr, "geheim", content)
	}
	for _, args := range [][]string{
		{"--jwt-jwks-url", "https://geheim@id.example.com/keys"},
		{"--jwt-jwks-url", "http://id.example.com/keys?geheim", "--jwt-issuer", "x", "--jwt-audience", "y"},
		{"--jwt-jwks-url", "https://id.example.com/keys?geheim", "--jwt-issuer", "x"},
		{"https://geheim@id.example.com/keys?geheim"},
		{"redis://geheim@127.0.0.1"},
	} {
		_, stdout, stderr := execute(t, append([]string{"config"}, args...)...)
		require.NotEmpty(t, stderr, args)
		require.NotContains(t, stdout+stderr, "geheim", args)
	}
	r := newReloadTest(t, names+"jwt-jwks-url: https://id.example.com/keys?key=geheim")
	log := r.write(names + "jwt-jwks-url: https://id.example.com/new?key=geheim")
	require.Contains(t, log, "jwt-jwks-url: https://id.example.com/keys?xxxxx → https://id.example.com/new?xxxxx")
	require.NotContains(t, log, "geheim")
}

// TestStoreThatIsNearlyAURL is an error: as the name of a file it would come up empty.
func TestStoreThatIsNearlyAURL(t *testing.T) {
	for _, store := range []string{
		"redis:/user:geheim@127.0.0.1:6379", "redis:geheim@127.0.0.1", "rediss:/geheim", "redis:127.0.0.1:6379/geheim",
		"REDIS:/geheim", "redis+sentinel:/geheim/?master=m",
		"redis+cluster:geheim", "Redis://geheim@127.0.0.1", "redis:", "redis:\\\\geheim",
	} {
		for _, args := range [][]string{{"config", "--store", store}, {"--listen", "127.0.0.1:0", "--store", store}} {
			code, stdout, stderr := execute(t, args...)
			require.Equal(t, 2, code, "%s: %s", args, stdout)
			require.Contains(t, stderr, "--store: ")
			require.Contains(t, stderr, "redis://", "it says how one is written")
			require.NotContains(t, stdout+stderr, "geheim")
			files, err := os.ReadDir(".")
			require.NoError(t, err)
			require.Empty(t, files, "no file was made")
		}
		_, _, stderr := execute(t, "config", "--store", store, "--config",
			writeConfig(t, "namespaces: {a: {redis-key: a}}"))
		require.NotContains(t, stderr, "geheim")
		_, _, stderr = execute(t, store)
		require.NotContains(t, stderr, "geheim")
	}
	for _, file := range []string{"redis", "redis.db", "./redis:1", "data/redis:1", "rediska:1", "xredis:1"} {
		code, _, stderr := execute(t, "config", "--store", file)
		require.Zero(t, code, "%s is a file: %s", file, stderr)
	}
}

// TestWarnsOfReadableDataFiles: lastseen creates them for their owner only; a copy or a backup may be for everyone.
func TestWarnsOfReadableDataFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "data.db")
	code, _, stderr := execute(t, "--listen", "127.0.0.1:0", "--store", file)
	require.Zero(t, code, stderr)
	require.NotContains(t, stderr, "chmod", "one that is new")
	for mode, warned := range map[os.FileMode]bool{
		0o600: false, 0o400: false, 0o644: true, 0o640: true, 0o604: true,
		0o660: true, 0o611: false,
	} {
		require.NoError(t, os.Chmod(file, mode))
		for _, args := range [][]string{{"--listen", "127.0.0.1:0"}, {"config"}} {
			_, _, stderr := execute(t, append(args, "--store", file)...)
			require.Equal(t, warned, strings.Contains(stderr, "chmod 600 "+file), "%o %s: %s", mode, args, stderr)
		}
	}
	_, _, stderr = execute(t, "config", "--store", "redis://127.0.0.1:1")
	require.Empty(t, stderr)
	_, _, stderr = execute(t, "config", "--store", dir)
	require.NotContains(t, stderr, "chmod", "a folder is another mistake")
}

// TestLeeway: config finds what serve would refuse.
func TestLeeway(t *testing.T) {
	file := writeFile(t, "secret", []byte(secret))
	for leeway, good := range map[string]bool{
		"0": true, "30s": true, "5m": true, "5m1ms": false, "6m": false,
		"87600h": false,
	} {
		args := []string{"--jwt-secret-file", file, "--jwt-issuer", "x", "--jwt-audience", "y", "--jwt-leeway", leeway}
		for _, command := range [][]string{{"config"}, {"--listen", "127.0.0.1:0"}} {
			code, _, stderr := execute(t, append(command, args...)...)
			require.Equal(t, good, code == 0, "%s %s: %s", command, leeway, stderr)
			if !good {
				require.Equal(t, 2, code, stderr)
				require.Contains(t, stderr, "jwt-leeway is "+leeway+" (flag --jwt-leeway)")
				require.Contains(t, stderr, "5m")
			}
		}
	}
}

// TestAllowedHostsReload checks that a reload changes the allowed hosts.
func TestAllowedHostsReload(t *testing.T) {
	r := newReloadTest(t, "allowed-hosts: presence.example.com")
	require.Equal(t, []string{"presence.example.com"}, r.served().AllowedHosts)
	require.Contains(t, r.write("allowed-hosts: ['*.example.com', nas.lan]"),
		"allowed-hosts: presence.example.com → *.example.com, nas.lan")
	require.Equal(t, []string{"*.example.com", "nas.lan"}, r.served().AllowedHosts)
}

// TestReloadWarnsOfServersOpenToPages: with * any page that is opened on this machine has full access.
func TestReloadWarnsOfServersOpenToPages(t *testing.T) {
	r := newReloadTest(t, "")
	require.Contains(t, r.write("cors-origins: '*'"), "level=WARN")
}
