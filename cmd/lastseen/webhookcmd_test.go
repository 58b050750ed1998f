package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// startWithWebhook starts a server with a webhook, and returns it and the file with its secret.
func startWithWebhook(t *testing.T, url string) (s *testserver.Server, secrets string) {
	t.Helper()
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("s"), 32))
	secrets = testserver.WriteFile(t, "secrets", []byte("# ours\n"+secret+"\n"))
	return testserver.Start(t, "--config", testserver.WriteConfig(t, fmt.Sprintf(
		"webhooks:\n  app: {url: %q, secrets-file: %q, namespaces: ['*']}\n", url, secrets))), secrets
}

// TestWebhookEnable: after 410, nothing is delivered until somebody enables the webhook.
func TestWebhookEnable(t *testing.T) {
	t.Parallel()
	var back atomic.Bool
	var accepted atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.WriteHeader(http.StatusGone)
			return
		}
		accepted.Add(1)
	}))
	t.Cleanup(receiver.Close)
	s, _ := startWithWebhook(t, receiver.URL)
	s.Post(t, "/v1/namespaces/chat/users/alice/ping", "")
	state := func() map[string]any {
		return s.Get(t, "/v1/webhooks")["webhooks"].([]any)[0].(map[string]any)
	}
	require.Eventually(t, func() bool { return state()["disabled"] == true }, time.Minute, 10*time.Millisecond)
	require.Equal(t, false, state()["delivering"])
	require.Equal(t, "gone", s.Post(t, "/v1/webhooks/app/test", "")["result"])

	back.Store(true)
	code, out, log := runInProcess("webhook", "enable", "app", "--server", s.URL)
	require.Zero(t, code, log)
	require.Equal(t, "app: enabled\n", out)
	require.Eventually(t, func() bool { return accepted.Load() > 0 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, true, state()["delivering"])
	require.Equal(t, map[string]any{"result": "delivered", "reason": nil}, s.Post(t, "/v1/webhooks/app/test", ""))

	for want, line := range map[string]string{
		"webhook_not_found":                "webhook enable a/b --server " + s.URL,
		"--server: URL of the server: use": "webhook enable app --server localhost:8080",
		"no such file":                     "webhook enable app --key-file missing",
		"expected \"<name>\"":              "webhook enable",
	} {
		code, _, log := runInProcess(strings.Fields(line)...)
		require.NotZero(t, code)
		require.Contains(t, log, want)
	}
}

// TestWebhookListen: events that were signed with the secret are printed, others are refused.
func TestWebhookListen(t *testing.T) {
	t.Parallel()
	_, secrets := startWithWebhook(t, "http://127.0.0.1:1/")
	ctx, cancel := context.WithCancel(t.Context())
	var out, log testenv.Log
	ended := make(chan int)
	args := []string{"webhook", "listen", "127.0.0.1:0", "--secrets-file", secrets}
	go func() { ended <- run(ctx, args, &out, &log) }()
	address := regexp.MustCompile(`http://[\d.:]+/`)
	require.Eventually(t, func() bool { return address.MatchString(log.String()) }, time.Minute, time.Millisecond)
	response, err := http.Post(address.FindString(log.String()), "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusBadRequest, response.StatusCode)
	require.Empty(t, out.String())

	delivering, _ := startWithWebhook(t, address.FindString(log.String()))
	delivering.Post(t, "/v1/namespaces/chat/users/alice/ping", "")
	require.Eventually(t, func() bool {
		return strings.Contains(out.String(), `"type":"presence.snapshot"`)
	}, time.Minute, time.Millisecond)
	require.Contains(t, out.String(), `"user":"alice"`)
	cancel()
	require.Zero(t, <-ended)
}
