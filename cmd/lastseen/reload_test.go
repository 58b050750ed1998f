package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// reloadTest is the configuration of a server, whose file the test rewrites.
type reloadTest struct {
	*runtimeConfig
	t    *testing.T
	file string
	log  testenv.Log // also written by the authenticator, which reads its key set in the background

	level slog.LevelVar
}

func newReloadTest(t *testing.T, content string) *reloadTest {
	r := &reloadTest{t: t, file: testserver.WriteConfig(t, content)}
	loader := config.Loader{Flags: map[string]string{"config": r.file}}
	c, err := loader.Load()
	require.NoError(t, err)
	r.runtimeConfig, err = newRuntimeConfig(c, dependencies{
		shared: api.NewShared(api.Config{}), load: loader.Reload,
		logger: slog.New(slog.NewTextHandler(&r.log, nil)), level: &r.level, metrics: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	t.Cleanup(r.close)
	return r
}

// write replaces the file, reloads, and returns what was logged.
func (r *reloadTest) write(content string) string {
	_ = r.log.Take()
	require.NoError(r.t, os.WriteFile(r.file, []byte(content), 0o600))
	r.reload()
	return strings.ReplaceAll(r.log.String(), r.file, "FILE")
}

// served returns the configuration of the current handler.
func (r *reloadTest) served() api.Config { return r.apiConfig(r.config()) }

// setting returns a setting of a namespace, in ms, as the server returns it.
func (r *reloadTest) setting(namespace, name string) int {
	r.t.Helper()
	response := httptest.NewRecorder()
	r.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "http://localhost/v1/namespaces/"+namespace, http.NoBody))
	require.Equal(r.t, http.StatusOK, response.Code, response.Body)
	var settings map[string]any
	require.NoError(r.t, json.Unmarshal(response.Body.Bytes(), &settings))
	return int(settings[name].(float64))
}

func TestReload(t *testing.T) {
	r := newReloadTest(t, "green: 60s\nnamespaces:\n  a: {green: 90s}\n  b: {retention: 1h}\n")
	log := r.write("green: 70s\nretention: 2h\nnamespaces:\n  b: {retention: off}\n  c: {ping-interval: 10s}\n")
	require.Contains(t, log,
		`level=INFO msg="configuration reloaded" file=FILE changes="green: 60s → 70s; retention: off → 2h; `+
			`namespaces.a removed; namespaces.a.green: 90s → 70s; namespaces.b.retention: 1h → off; `+
			`namespaces.c added; namespaces.c.ping-interval: 30s → 10s"`)
	require.Equal(t, 70_000, r.setting("a", "green_ms"))
	require.Equal(t, 2*time.Hour, r.config().Namespace("a").Retention)
	require.Zero(t, r.config().Namespace("b").Retention)
	require.Equal(t, 10_000, r.setting("c", "ping_interval_ms"))
	require.Equal(t, []string{"b", "c"}, r.config().Names())
	require.Len(t, r.changed, 1)

	require.Contains(t, r.write("green: 1m\n"), "namespaces.b removed")
	require.Contains(t, r.write("green: 60s # the same\n"), "changes=none")
}

func TestReloadLogsOnlySomeOfManyChanges(t *testing.T) {
	r := newReloadTest(t, "")
	content := "namespaces:\n"
	for n := range 1000 {
		content += fmt.Sprintf("  n%03d:\n", n)
	}
	log := r.write(content)
	require.Contains(t, log, `namespaces.n018 added; namespaces.n019 added; and 980 more"`)
}

func TestReloadWarns(t *testing.T) {
	r := newReloadTest(t, "")
	require.Contains(t, r.write("namespaces: {a: {ping-interval: 45s}}"),
		`level=WARN msg="green is 60s (default) and namespaces.a.ping-interval is 45s (FILE:1)`)
}

// TestReloadChangesNothing if anything is wrong.
func TestReloadChangesNothing(t *testing.T) {
	const before = "green: 60s\nstore: redis://u:geheim@127.0.0.1:1\nnamespaces: {a: {redis-key: a}, b: {redis-score-unit: ms}, c: }\n"
	for content, want := range map[string][]string{
		"grene: 1s\nyellow: 7\n":             {"FILE:1: grene: unknown setting", "FILE:2: yellow:"},
		"green: 70s\n  yellow: 6m":           {"FILE:2: mapping values"},
		before + "sync: 2s":                  {"sync: 1s → 2s requires a restart"},
		before + "green":                     {"FILE:4: "},
		"store: redis://u:pssst@127.0.0.1:2": {"store: redis://u:xxxxx@127.0.0.1:1 → redis://u:xxxxx@127.0.0.1:2 requires", "namespaces.a.redis-key: a → not set requires", "namespaces.b.redis-score-unit: ms → ms requires"},
		strings.Replace(before, "c:", "c: {redis-key: x}",
			1): {"namespaces.c.redis-key: not set → x requires a restart"},
		before[:len(before)-2] + ", d: {redis-shards: 2}}": {"namespaces.d.redis-shards: 1 → 2 requires a restart"},
		"redis-shards: 2\ngreen: 70s\n" + before[11:]:      {"redis-key is a", "redis-shards is 2"},
	} {
		r := newReloadTest(t, before)
		current, handler := r.config(), r.handler.Load()
		log := r.write(content)
		for _, text := range want {
			require.Contains(t, log, text, content)
		}
		require.Contains(t, log, `level=ERROR msg="configuration not reloaded, nothing was changed" problem=`)
		require.NotContains(t, log, "level=INFO")
		require.NotContains(t, log, "geheim")
		require.NotContains(t, log, "pssst")
		require.Same(t, current, r.config())
		require.Same(t, handler, r.handler.Load())
		require.Empty(t, r.changed)
	}
	r := newReloadTest(t, before)
	require.NoError(t, os.Remove(r.file))
	r.reload()
	require.Contains(t, r.log.String(), "no such file")
}

// TestReloadOfTheProcess reloads the real one while requests come in, each of which sees one version.
func TestReloadOfTheProcess(t *testing.T) {
	t.Parallel()
	file := testserver.WriteConfig(t, "green: 10s\nyellow: 20s\nping-interval: 1s\n")
	s := testserver.Start(t, "--config", file)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, a := s.Call(t, "GET", "/v1/namespaces/chat", ""); a["yellow_ms"] != 2*a["green_ms"].(float64) {
				t.Errorf("two versions in one answer: %v", a)
			}
		}
	})
	reload := func(content, want string) {
		t.Helper()
		hangup(t, s, file, content)
		requireLogged(t, s, want)
	}
	reload("green: 30s\nyellow: 60s\nnamespaces: {new: {green: 5s, yellow: 50s}}\n", "green: 10s → 30s")
	require.EqualValues(t, 30_000, s.Get(t, "/v1/namespaces/chat")["green_ms"])
	require.EqualValues(t, 5_000, s.Get(t, "/v1/namespaces/new")["green_ms"])
	require.Eventually(t, func() bool {
		return strings.Contains(fmt.Sprint(s.Get(t, "/v1/namespaces")), "new")
	}, 30*time.Second, time.Millisecond)
	reload("green: 40s\nyellow: 20s\n", "green must be shorter")
	require.EqualValues(t, 30_000, s.Get(t, "/v1/namespaces/chat")["green_ms"])
	reload("listen: 127.0.0.1:1\nsync: 9s\n", "sync: 1s → 9s requires a restart")
	require.NotContains(t, s.Log.String(), "listen", "the flag wins as before")
	close(stop)
	asking.Wait()
	require.Zero(t, s.Terminate(t))
}

func TestHangupWithoutFile(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	hangup(t, s, "", "")
	requireLogged(t, s, "nothing to reload")
	s.Get(t, "/healthz")
	require.Zero(t, s.Terminate(t))
}

// TestAccessReloads: keys and secrets that are given out or taken back take effect with the next request.
func TestAccessReloads(t *testing.T) {
	one, two := testserver.Secret+" one", testserver.Secret+" two"
	secretFile := testserver.WriteFile(t, "secret", []byte(one))
	tokens := testserver.Issuer + "jwt-secret-file: " + secretFile + "\n"
	r := newReloadTest(t, tokens+aKey)
	allowed := func(credentials string) bool {
		_, err := r.authenticator.Authenticate(t.Context(), []string{"Bearer " + credentials})
		return err == nil
	}
	require.True(t, allowed("ls_a"))
	require.True(t, allowed(sign(t, one)))
	guard := r.authenticator
	require.Contains(t, r.write(tokens+aKey+"green: 50s"), `changes="green: 60s → 50s"`)
	require.Same(t, guard, r.authenticator, "nothing about it changed")

	bKey := strings.ReplaceAll(
		strings.ReplaceAll(aKey, testserver.HashOf("ls_a"), testserver.HashOf("ls_b")), "scopes: [read]",
		"scopes: [read, ping]")
	require.NoError(t, os.WriteFile(secretFile, []byte(two), 0o600))
	log := r.write(tokens + bKey + "rate-limit: 7\ncors-origins: https://a.example.com")
	require.Contains(t, log, "green: 50s → 60s")
	require.Contains(t, log, "rate-limit: 5000 → 7")
	require.Contains(t, log, "cors-origins: not set → https://a.example.com")
	require.Contains(t, log, "keys.a.hash: "+testserver.HashOf("ls_a")+" → "+testserver.HashOf("ls_b"))
	require.Contains(t, log, "keys.a.scopes: [read] → [read, ping]")
	require.Contains(t, log, "jwt-secret-file: the secret changed")
	require.NotContains(t, log, "geheim")
	require.False(t, allowed("ls_a"))
	require.True(t, allowed("ls_b"))
	require.False(t, allowed(sign(t, one)))
	require.True(t, allowed(sign(t, two)))
	require.Equal(t, 7, r.served().Limits.Caller)
	require.Equal(t, []string{"https://a.example.com"}, r.served().CORSOrigins)

	require.Contains(t, r.write(tokens+"log-level: debug"), "keys.a removed")
	require.Equal(t, slog.LevelDebug, r.level.Level())
	require.False(t, allowed("ls_b"))
	require.Contains(t, r.write(tokens+aKey), "keys.a added")
}

// TestReloadKeepsAuthentication: a file that was cut off must not let everyone in.
func TestReloadKeepsAuthentication(t *testing.T) {
	r := newReloadTest(t, aKey)
	require.Contains(t, r.write("green: 50s"),
		`problem="no keys and no JWTs are left, so anyone would have full access: set auth: none to allow it"`)
	require.False(t, r.authenticator.Open())
	require.Contains(t, r.write("auth: none"), "keys.a removed")
	require.True(t, r.authenticator.Open())
	require.Contains(t, r.write(aKey), "keys.a added")
	require.False(t, r.authenticator.Open())
}

func sign(t *testing.T, secret string) string {
	t.Helper()
	return testserver.Token(t, jwt.SigningMethodHS256, []byte(secret), map[string]any{"alg": "HS256"},
		testserver.Claims(map[string]any{"namespaces": nil}))
}
