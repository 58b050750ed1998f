package browser

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

const operatorsKey = "ls_operator"

// startWithWebhook starts a server with a webhook, whose receiver responds with a status, and with the keys of an
// operator and of a reader.
func startWithWebhook(t *testing.T, status *atomic.Int64) *testserver.Server {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(receiver.Close)
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 32)))
	return testserver.Start(t, "--config", testserver.WriteConfig(t, fmt.Sprintf(`
webhooks:
  app: {url: %q, secrets-file: %q, namespaces: [chat]}
keys:
  operator: {hash: "%s", scopes: [ping, read, admin], namespaces: ["*"]}
  full: {hash: "%s", scopes: [ping, read], namespaces: ["*"]}
`, receiver.URL, testserver.WriteFile(t, "secrets", []byte(secret)), testserver.HashOf(operatorsKey),
		testserver.HashOf(fullKey))))
}

// TestDashboardWebhooks sends a test event to a webhook, sees that it is disabled, and enables it.
func TestDashboardWebhooks(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusOK)
	s := startWithWebhook(t, &status)
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, until(`document.activeElement.id === "key"`), signIn(operatorsKey), says("#webhooks", "app"),
		clickOn(`[aria-label="Test: app"]`), says("#webhooks", "Test event: delivered."),
		until(`document.querySelector('[aria-label="Enable: app"]').hidden`))
	status.Store(http.StatusInternalServerError)
	b.Do(t, clickOn(`[aria-label="Test: app"]`), says("#webhooks", "Test event: failed: the receiver answered 500."))

	status.Store(http.StatusGone)
	b.Do(t, typeInto("#user", "alice"), clickOn(`#find [value="ping"]`), lists("alice", "green", "online now"))
	requireWebhook(t, s, `"disabled":true`)
	b.Do(t, chromedp.Reload(), says("#webhooks", "Disabled: its receiver answered 410."),
		says("#webhooks", "Nothing was delivered yet. Failed "))
	for _, width := range []int64{1280, 360} {
		b.Do(t, chromedp.EmulateViewport(width, 740), testbrowser.Settled)
		requireFits(t, b, fmt.Sprint(width))
		require.Empty(t, testbrowser.Measure[[]string](t, b, "faint(4.5)"), width)
	}

	status.Store(http.StatusOK)
	b.Do(t, clickOn(`[aria-label="Enable: app"]`), says("#webhooks", "Enabled."),
		until(`document.querySelector('[aria-label="Enable: app"]').hidden`),
		until(`document.activeElement.ariaLabel === "Test: app"`))
	requireWebhook(t, s, `"last_delivery":"20`)
	b.Do(t, chromedp.Reload(), says("#webhooks", "Last delivery "),
		until(`document.querySelector("#webhooks-list li").dataset.state === "delivering"`))
	require.Empty(t, mistakes(b))
}

// requireWebhook waits until the state of the webhook has a text.
func requireWebhook(t *testing.T, s *testserver.Server, wanted string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, _, list := s.Ask(t, http.MethodGet, "/v1/webhooks", "", "Authorization: Bearer "+operatorsKey)
		return strings.Contains(list, wanted)
	}, time.Minute, 100*time.Millisecond)
}

// TestDashboardWithoutWebhooks checks that a reader who is no operator sees none, and is not asked for another key.
func TestDashboardWithoutWebhooks(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusOK)
	s := startWithWebhook(t, &status)
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, until(`document.activeElement.id === "key"`), signIn(fullKey), says("#connection", "Live"),
		until(`performance.getEntriesByType("resource").some(e => e.name.endsWith("v1/webhooks") && e.responseStatus === 403)`))
	require.True(t, testbrowser.Evaluate[bool](t, b, `document.getElementById("webhooks").hidden`))
	require.True(t, testbrowser.Evaluate[bool](t, b, `document.getElementById("signin").hidden`))
	require.Empty(t, mistakes(b))
}
