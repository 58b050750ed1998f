//go:build faults

package faults

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// guarded is a server with keys and tokens.
type guarded struct {
	*server
	config, secret string // files
	keys           map[string]string
}

// startGuarded starts a server with two keys of all scopes, and tokens.
func startGuarded(t testing.TB, store string) *guarded {
	t.Helper()
	dir := t.TempDir()
	g := &guarded{
		config: filepath.Join(dir, "lastseen.yaml"), secret: filepath.Join(dir, "secret"), keys: map[string]string{},
	}
	require.NoError(t, os.WriteFile(g.secret, []byte(strings.Repeat("secret", 10)), 0o600))
	g.server = newServer(t, store, holdArgs("--config", g.config)...)
	lines := g.base() + "keys:\n"
	for _, name := range []string{"stays", "removed"} {
		key, hash := g.newKey(t)
		g.keys[name] = key
		lines += "  " + name + ":\n    hash: " + hash + "\n    scopes: [ping, read, admin]\n    namespaces: [\"*\"]\n"
	}
	require.NoError(t, os.WriteFile(g.config, []byte(lines), 0o600))
	g.start(t)
	return g
}

// base returns the configuration without keys.
func (g *guarded) base() string {
	return "jwt-secret-file: " + g.secret + "\njwt-issuer: faults\njwt-audience: lastseen\njwt-leeway: 0s\n"
}

// newKey returns a key and its hash in the configuration.
func (g *guarded) newKey(t testing.TB) (key, hash string) {
	t.Helper()
	for line := range strings.Lines(runCommand(t, g.binary, "key", "new")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "ls_") {
			key = line
		}
		if _, after, ok := strings.Cut(line, "hash: "); ok {
			hash = after
		}
	}
	require.NotEmpty(t, key)
	require.NotEmpty(t, hash)
	return key, hash
}

// token returns a token of a user.
func (g *guarded) token(t testing.TB, user string, ttl time.Duration) string {
	t.Helper()
	return runCommand(t, g.binary, "token", "new", "--config", g.config, "--user", user, "--namespaces", "chat",
		"--ttl", ttl.String())
}

// removeKey reloads the configuration without the key with the name removed.
func (g *guarded) removeKey(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile(g.config)
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(text), "  removed:")
	require.True(t, ok)
	require.NoError(t, os.WriteFile(g.config, []byte(before), 0o600))
	g.signal(t, syscall.SIGHUP)
	g.awaitLog(t, "configuration reloaded")
}

// TestHeldAccessEnds ends what lets clients hold connections: tokens end, and a key is removed. Both close connections,
// and neither is a goodbye.
func TestHeldAccessEnds(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, redistest.StartProcess(t).URL())
	open := func(user, token string) *socket {
		return connect(t, socketOptions{url: g.url, hello: device(user, user, "mobile").with("token", token)})
	}
	const ttl = 5 * time.Second
	expires, renews := open("expires", g.token(t, "expires", ttl)), open("renews", g.token(t, "renews", ttl))
	require.NotNil(t, expires.welcome.ExpiresInMs)
	require.LessOrEqual(t, *expires.welcome.ExpiresInMs, ttl.Milliseconds())
	stays, removed := open("stays", g.keys["stays"]), open("removed", g.keys["removed"])

	other := renews.ask(t, "token", object{"token": g.token(t, "expires", time.Hour)})
	require.Equal(t, "problem", other.name, "the token of another user: %s", other.data)
	require.Equal(t, "ok", renews.ask(t, "token", object{"token": g.token(t, "renews", time.Hour)}).name)
	require.Equal(t, closedToken, expires.awaitEnd(t), "%v", expires.why())
	g.removeKey(t)
	reloaded := time.Now()
	require.Equal(t, closedKey, removed.awaitEnd(t), "%v", removed.why())
	t.Logf("closed %s after the reload", time.Since(reloaded).Round(time.Millisecond))

	late := object{"user": "late", "token": g.keys["removed"]}
	_, err := openSocket(t.Context(), socketOptions{url: g.url, hello: late})
	require.Contains(t, []string{"4401", "4403", "HTTP 401"}, endOf(err))
	// A watcher sees how those who were closed decay: they said no goodbye.
	users := []string{"expires", "removed"}
	tr := &trail{connect(t, socketOptions{url: g.url, hello: object{
		"token": g.keys["stays"], "watch": object{"users": users},
	}}), "watcher"}
	for _, user := range users {
		tr.await(t, user, lastseen.Grey)
		require.NotContains(t, tr.course(t, user), "left")
	}
	require.True(t, stays.open(), "%v", stays.why())
	require.True(t, renews.open(), "%v", renews.why())
	require.Zero(t, g.metric(t, "lastseen_connections_goodbyes_total"))
}

// TestHeldUserForgotten forgets a user on another server than that which holds their connections. They are closed, and
// the user stays forgotten. An operator can also close the connections alone.
func TestHeldUserForgotten(t *testing.T) {
	t.Parallel()
	servers, tr := startHeld(t, 2, "forgotten", "closed", "stays")
	forgotten, closed := here(t, tr, servers[0], "forgotten"), here(t, tr, servers[0], "closed")
	stays := here(t, tr, servers[0], "stays")
	r := servers[1].request(t, http.MethodDelete, "/v1/namespaces/chat/users/forgotten")
	require.Equal(t, http.StatusNoContent, r.status, "%s", r.body)
	began := time.Now()
	require.Equal(t, closedUser, forgotten.awaitEnd(t), "%v", forgotten.why())
	t.Logf("closed %s after the user was forgotten", time.Since(began).Round(time.Millisecond))
	r = servers[1].request(t, http.MethodDelete, "/v1/namespaces/chat/users/closed/connections")
	require.Equal(t, http.StatusNoContent, r.status, "%s", r.body)
	require.Equal(t, closedUser, closed.awaitEnd(t), "%v", closed.why())

	tr.requireDecay(t, "closed", holdThresholds()) // after many heartbeats of the one who stays
	tr.requireOnlyGreen(t, "stays")
	require.True(t, stays.open())
	require.Equal(t, []string{"unknown", "green", "unknown"}, tr.course(t, "forgotten"))
	require.Nil(t, presenceOf(t, servers[1], "forgotten").LastSeen)
}
