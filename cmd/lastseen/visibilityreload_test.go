package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// TestVisibilityReload changes the visibility of a running server, there and back: what is open ends, so that clients
// begin again by the new rule.
func TestVisibilityReload(t *testing.T) {
	t.Parallel()
	secretFile := writeFile(t, "secret", []byte(secret))
	config := func(visibility string) string {
		return names + "jwt-secret-file: " + secretFile + "\nvisibility: " + visibility +
			fmt.Sprintf("\nkeys: {all: {hash: '%s', scopes: [ping, read], namespaces: ['*']}}\n", hashOf("ls_all"))
	}
	file := writeConfig(t, config("everyone"))
	s := start(t, "--config", file, "--admin-listen", "127.0.0.1:0")
	w, bobby := world{servers: []string{s.url}}, roomToken(t, "bobby")
	w.do(t, 0, "POST", room+"/users/carla/ping", "")
	require.Equal(t, "green", w.shownTo(t, 0, bobby, "carla"))
	for _, change := range [][2]string{{"contacts", "never seen"}, {"everyone", "green"}} {
		ended := s.openAll(t, bobby)
		s.log.Reset()
		require.NoError(t, os.WriteFile(file, []byte(config(change[0])), 0o600))
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
		for what, end := range ended {
			require.NoError(t, <-end, what)
		}
		require.Eventually(t, func() bool { return strings.Contains(s.log.String(), "→ "+change[0]) }, worldWait,
			10*time.Millisecond, s.log)
		require.Equal(t, change[1], w.shownTo(t, 0, bobby, "carla"))
		require.Equal(t, "green", w.shownTo(t, 0, "ls_all", "carla"), "keys see everyone")
		text, err := fetch(t.Context(), s.url+room+"/changes?user=carla", bobby)
		require.NoError(t, err)
		again := &sight{shown: map[string]string{}}
		again.take("poll", text, false)
		require.Equal(t, change[1], again.words("carla"))
	}
}

// openAll opens a stream, a WebSocket and a long poll, which wait for changes when it returns. Each returns an error if
// it did not end as when a server stops.
func (s *service) openAll(t *testing.T, credential string) map[string]<-chan error {
	t.Helper()
	q := sightQuery{users: []string{"carla"}}
	all := map[string]<-chan error{}
	for transport, client := range map[string]func(ctx context.Context) error{
		"sse": func(ctx context.Context) error {
			err := (&sight{shown: map[string]string{}}).readEvents(ctx, s.url, credential, q)
			if errors.Is(err, errStreamEnded) {
				return nil
			}
			return err
		},
		"websocket": func(ctx context.Context) error {
			err := (&sight{shown: map[string]string{}}).readFrames(ctx, s.url, credential, q)
			if websocket.CloseStatus(err) == 4503 {
				return nil
			}
			return err
		},
		"long_poll": func(ctx context.Context) error { return pollUntilStop(ctx, s.url, credential) },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), worldWait)
		t.Cleanup(cancel)
		end := make(chan error, 1)
		go func() { end <- client(ctx) }()
		all[transport] = end
		waiting := fmt.Sprintf("lastseen_changes_streams{transport=%q} 1\n", transport)
		require.Eventually(t, func() bool {
			r := send(t, s.admin, http.MethodGet, "/metrics", "", "")
			return strings.Contains(r.body, waiting)
		}, worldWait, 20*time.Millisecond, waiting)
	}
	return all
}

// pollUntilStop waits for changes by a long poll. It returns an error unless the response is that of a server that
// stops.
func pollUntilStop(ctx context.Context, server, credential string) error {
	path := server + room + "/changes?user=carla"
	text, err := fetch(ctx, path, credential)
	if err != nil {
		return err
	}
	_, cursor, _ := strings.Cut(text, `"cursor":"`)
	cursor, _, _ = strings.Cut(cursor, `"`)
	path += "&wait=50s&cursor=" + url.QueryEscape(cursor)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+credential)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	stops := answer.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body), "shutting_down")
	if err == nil && !stops {
		err = fmt.Errorf("%d: %s", answer.StatusCode, body)
	}
	return err
}
