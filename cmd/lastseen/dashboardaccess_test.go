package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// The keys of startWithKeys.
const (
	fullKey  = "ls_full-access"
	writeKey = "ls_write-only"
)

// startWithKeys starts a server with two keys and JWTs, whose secret it returns.
func startWithKeys(t *testing.T) (*service, []byte) {
	t.Helper()
	secret := []byte(strings.Repeat("s", 32))
	s := start(t, "--config", writeConfig(t, fmt.Sprintf(`
jwt-secret-file: %s
jwt-issuer: https://id.example.com
jwt-audience: lastseen
keys:
  full: {hash: "%s", scopes: [ping, read], namespaces: ["*"]}
  write: {hash: "%s", scopes: [ping], namespaces: [chat]}
`, writeFile(t, "secret", secret), hashOf(fullKey), hashOf(writeKey))))
	return s, secret
}

// signIn signs in on the dashboard.
func signIn(key string) browserStep {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		if _, err := typeInto("#key", key)(ctx, target); err != nil {
			return chromedp.Void{}, err
		}
		return chromedp.KeyEvent("\r")(ctx, target)
	}
}

// TestDashboardSignIn signs in with a key, which stays in the tab, and signs out.
func TestDashboardSignIn(t *testing.T) {
	t.Parallel()
	s, _ := startWithKeys(t)
	b := openDashboard(t, s.url, "")
	b.do(t, until(`document.activeElement.id === "key"`))
	require.Contains(t, textOf(t, b, "#signin"), "This server requires an API key or a JWT.")
	require.Contains(t, textOf(t, b, "#signin"), "The key stays in the session storage of this tab")
	b.do(t, signIn("ключ"), says("#signin-error", "The server does not accept this key or token."),
		signIn("ls_wrong"), says("#signin-error", "The server does not accept this key or token."),
		signIn(fullKey), says("#connection", "Live"),
		typeInto("#user", "alice"), clickOn(`#find [value="ping"]`), lists("alice", "green", "online now"),
		showsCounts("1", "0", "0"))

	require.Equal(t, fullKey, evaluate[string](t, b, `Object.values(sessionStorage).join()`))
	for _, expression := range []string{
		`location.href`, `document.documentElement.outerHTML`, `document.getElementById("key").value`,
		`JSON.stringify(localStorage) + document.cookie`,
	} {
		require.NotContains(t, evaluate[string](t, b, expression), fullKey, expression)
	}
	require.Contains(t, textOf(t, b, "#commands"), `curl -sS -H "Authorization: Bearer $LASTSEEN_KEY" '`+s.url)

	b.do(t, chromedp.Reload(), lists("alice", "green", "online now"), clickOn("#signout"),
		until(`document.activeElement.id === "key"`))
	require.Empty(t, evaluate[string](t, b, `Object.values(sessionStorage).join()`))
	require.Empty(t, evaluate[string](t, b, `document.getElementById("users").innerText`))
	require.Empty(t, b.mistakes())
}

// TestDashboardExplainsPermissions checks that the dashboard shows what a key or token may not do.
func TestDashboardExplainsPermissions(t *testing.T) {
	t.Parallel()
	s, secret := startWithKeys(t)
	b := openDashboard(t, s.url, "#namespace=chat")
	b.do(t, signIn(writeKey),
		says("#namespaces-note", "This key cannot list namespaces. Open one by name."),
		says("#people-note", "You cannot list users here."),
		showsCounts("unknown", "unknown", "unknown"),
		typeInto("#user", "alice"), clickOn(`#find [value="ping"]`),
		says("#notice", "alice: ping recorded."), clickOn("#signout"))

	bob := token(t, jwt.SigningMethodHS256, secret, map[string]any{"alg": "HS256"}, claims(map[string]any{
		"sub": "bob", "namespaces": "chat",
	}))
	b.do(t, until(`document.activeElement.id === "key"`), signIn(bob), lists("alice", "green", "online now"),
		clickIn("alice", ".row button"),
		until(`document.querySelector(".details").innerText.includes("You cannot see the devices of this user.")`),
		says(".availability p", "You cannot see or set what this user says."),
		clickIn("alice", ".actions button"),
		says("#notice", "Not allowed. A token speaks for its own user only."),
		typeInto("#user", "bob"), clickOn(`#find [value="ping"]`), lists("bob", "green", "online now"))
	require.Empty(t, b.mistakes())
}

// TestDashboardExplainsAForbiddenSearch checks that the dashboard shows why it cannot show the user in its link.
func TestDashboardExplainsAForbiddenSearch(t *testing.T) {
	t.Parallel()
	s, _ := startWithKeys(t)
	b := openDashboard(t, s.url, "#namespace=chat&user=alice")
	b.do(t, signIn(writeKey), says("#people-note", "You cannot list users here."))
	require.Empty(t, b.mistakes())
}

// TestDashboardAsksAgain checks that the dashboard asks for another token when one has expired.
func TestDashboardAsksAgain(t *testing.T) {
	t.Parallel()
	s, secret := startWithKeys(t)
	past := claims(map[string]any{"exp": 1})
	expired := token(t, jwt.SigningMethodHS256, secret, map[string]any{"alg": "HS256"}, past)
	b := openDashboard(t, s.url, "#namespace=chat")
	b.do(t, until(`document.activeElement.id === "key"`),
		until(fmt.Sprintf(`(sessionStorage.setItem("lastseen.key", %q), true)`, expired)), chromedp.Reload(),
		says("#signin-reason", "The server refused the key or token"),
		signIn(fullKey), says("#connection", "Live"))
	require.Empty(t, b.mistakes())
}

// TestDashboardForAnyone checks that no key is needed where anyone can read, and that the dashboard asks for one to
// write.
func TestDashboardForAnyone(t *testing.T) {
	t.Parallel()
	s := start(t, "--config", writeConfig(t, fmt.Sprintf(
		"anonymous-read: [chat]\nkeys: {full: {hash: %q, scopes: [ping, read], namespaces: ['*']}}\n", hashOf(fullKey))))
	b := openDashboard(t, s.url, "#namespace=chat")
	b.do(t, showsCounts("0", "0", "0"), says("#connection", "Live"))
	require.Empty(t, b.seen())
	b.do(t, typeInto("#user", "alice"), clickOn(`#find [value="ping"]`), until(`document.activeElement.id === "key"`),
		signIn(fullKey), until(`document.getElementById("signin").hidden`),
		typeInto("#user", "alice"), clickOn(`#find [value="ping"]`), lists("alice", "green", "online now"))
	require.Empty(t, b.mistakes())
}
