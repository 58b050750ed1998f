package browser

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// The keys of startWithKeys.
const (
	fullKey  = "ls_full-access"
	writeKey = "ls_write-only"
)

// startWithKeys starts a server with two keys and JWTs.
func startWithKeys(t *testing.T) *testserver.Server {
	t.Helper()
	return testserver.Start(t, "--config", testserver.WriteConfig(t, fmt.Sprintf(`
jwt-secret-file: %s
jwt-issuer: https://id.example.com
jwt-audience: lastseen
keys:
  full: {hash: "%s", scopes: [ping, read], namespaces: ["*"]}
  write: {hash: "%s", scopes: [ping], namespaces: [chat]}
`, testserver.WriteFile(t, "secret", []byte(testserver.Secret)), testserver.HashOf(fullKey),
		testserver.HashOf(writeKey))))
}

func signIn(key string) step {
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
	s := startWithKeys(t)
	b := openDashboard(t, s.URL, "")
	b.Do(t, until(`document.activeElement.id === "key"`))
	require.Contains(t, textOf(t, b, "#signin"), "This server requires an API key or a JWT.")
	require.Contains(t, textOf(t, b, "#signin"), "The key stays in the session storage of this tab")
	b.Do(t, signIn("ключ"), says("#signin-error", "The server does not accept this key or token."),
		signIn("ls_wrong"), says("#signin-error", "The server does not accept this key or token."),
		signIn(fullKey), says("#connection", "Live"),
		typeInto("#user", "alice"), clickOn(`#find [value="ping"]`), lists("alice", "green", "online now"),
		showsCounts("1", "0", "0"))

	require.Equal(t, fullKey, testbrowser.Evaluate[string](t, b, `Object.values(sessionStorage).join()`))
	for _, expression := range []string{
		`location.href`, `document.documentElement.outerHTML`, `document.getElementById("key").value`,
		`JSON.stringify(localStorage) + document.cookie`,
	} {
		require.NotContains(t, testbrowser.Evaluate[string](t, b, expression), fullKey, expression)
	}
	require.Contains(t, textOf(t, b, "#commands"), `curl -sS -H "Authorization: Bearer $LASTSEEN_KEY" '`+s.URL)

	b.Do(t, chromedp.Reload(), lists("alice", "green", "online now"), clickOn("#signout"),
		until(`document.activeElement.id === "key"`))
	require.Empty(t, testbrowser.Evaluate[string](t, b, `Object.values(sessionStorage).join()`))
	require.Empty(t, testbrowser.Evaluate[string](t, b, `document.getElementById("users").innerText`))
	require.Empty(t, mistakes(b))
}

// TestDashboardExplainsPermissions checks that the dashboard shows what a key or token may not do.
func TestDashboardExplainsPermissions(t *testing.T) {
	t.Parallel()
	s := startWithKeys(t)
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, signIn(writeKey),
		says("#namespaces-note", "You cannot list namespaces. Open one by name."),
		says("#people-note", "You cannot list users here."), says("#connection", "Not updated"),
		says("#feed-note", "You cannot follow changes here."),
		showsCounts("unknown", "unknown", "unknown"),
		typeInto("#user", "alice"), clickOn(`#find [value="ping"]`),
		says("#notice", "alice: ping recorded."), clickOn("#signout"))

	bob := testserver.UserToken(t, map[string]any{"sub": "bob", "namespaces": "chat"})
	b.Do(t, until(`document.activeElement.id === "key"`), signIn(bob), lists("alice", "green", "online now"),
		clickIn("alice", ".row button"),
		until(`document.querySelector(".details").innerText.includes("You cannot see the devices of this user.")`),
		says(".availability p", "You cannot see or set the availability of this user."),
		clickIn("alice", ".actions button"),
		says("#notice", "Not allowed. A token speaks for its own user only."),
		typeInto("#user", "bob"), clickOn(`#find [value="ping"]`), lists("bob", "green", "online now"))
	require.Empty(t, mistakes(b))
}

// TestDashboardExplainsAForbiddenSearch checks that the dashboard shows why it cannot show the user in its link.
func TestDashboardExplainsAForbiddenSearch(t *testing.T) {
	t.Parallel()
	s := startWithKeys(t)
	b := openDashboard(t, s.URL, "#namespace=chat&user=alice")
	b.Do(t, signIn(writeKey), says("#people-note", "You cannot list users here."))
	require.Empty(t, mistakes(b))
}

// TestDashboardAsksAgain checks that the dashboard asks for another token when one has expired.
func TestDashboardAsksAgain(t *testing.T) {
	t.Parallel()
	s := startWithKeys(t)
	expired := testserver.UserToken(t, map[string]any{"exp": 1})
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, until(`document.activeElement.id === "key"`),
		until(fmt.Sprintf(`(sessionStorage.setItem("lastseen.key", %q), true)`, expired)), chromedp.Reload(),
		says("#signin-reason", "The server refused the key or token"),
		signIn(fullKey), says("#connection", "Live"))
	require.Empty(t, mistakes(b))
}

// TestDashboardForAnyone checks that no key is needed where anyone can read, and that the dashboard asks for one to
// write.
func TestDashboardForAnyone(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--config", testserver.WriteConfig(t, fmt.Sprintf(
		"anonymous-read: [chat]\nkeys: {full: {hash: %q, scopes: [ping, read], namespaces: ['*']}}\n", testserver.HashOf(fullKey))))
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, showsCounts("0", "0", "0"), says("#connection", "Live"))
	require.Empty(t, mistakes(b)) // but that only operators see webhooks
	b.Do(t, typeInto("#user", "alice"), clickOn(`#find [value="ping"]`), until(`document.activeElement.id === "key"`),
		signIn(fullKey), until(`document.getElementById("signin").hidden`),
		typeInto("#user", "alice"), clickOn(`#find [value="ping"]`), lists("alice", "green", "online now"))
	require.Empty(t, mistakes(b))
}
