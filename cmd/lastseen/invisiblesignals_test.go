package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// compareBlind compares the responses to writes of a caller who may write, but not read.
func (w twins) compareBlind(t *testing.T) {
	t.Helper()
	w.hide(t, []string{"alice"}, `"note":"x"`)
	for _, request := range [][2]string{
		{"/users/alice/ping", ""},
		{"/users/alice/ping", `{"device":{"id":"tab"}}`},
		{"/users/alice/leave", `{"device":{"id":"tab"},"after":"100ms"}`},
		{"/users/alice/leave", ""},
		{"/pings", `{"pings":[{"user":"alice"},{"user":"bobby","device":{"id":"tab"}}]}`},
		{"/leaves", `{"leaves":[{"user":"alice"}]}`},
	} {
		ask := func(namespace, other string) func() response {
			return func() response {
				r := send(t, w.servers[0], http.MethodPost, "/v1/namespaces/"+namespace+request[0], request[1], "ls_writer")
				require.Less(t, r.status, 300, r.body)
				return r.comparable(namespace, other)
			}
		}
		same(t, "blind "+request[0], ask(w.left, w.hidden), ask(w.hidden, w.left))
	}
	w.requireInvisible(t, "alice")
}

// wait begins requests that wait for changes in both namespaces. It returns a function that checks that nothing ended
// them before their time.
func (w twins) wait(t *testing.T) (check func()) {
	t.Helper()
	const wait = 2 * time.Second
	type ended struct {
		took  time.Duration
		users []any
	}
	results := make(chan ended, 2)
	for namespace, credential := range map[string]string{w.left: "ls_left", w.hidden: "ls_hide"} {
		path := "/v1/namespaces/" + namespace + "/changes"
		var page struct {
			Cursor string
			Users  []any
		}
		first := send(t, w.servers[0], http.MethodGet, path, "", credential)
		require.NoError(t, json.Unmarshal([]byte(first.body), &page))
		begun := time.Now()
		go func() {
			r := send(t, w.servers[0], http.MethodGet, //nolint:testifylint // it fails only without the server
				path+"?wait="+wait.String()+"&cursor="+url.QueryEscape(page.Cursor), "", credential)
			if err := json.Unmarshal([]byte(r.body), &page); err != nil || r.status != http.StatusOK {
				t.Errorf("%d: %s", r.status, r.body)
			}
			results <- ended{time.Since(begun), page.Users}
		}()
	}
	return func() {
		for range 2 {
			r := <-results
			require.Empty(t, r.users)
			require.GreaterOrEqual(t, r.took, wait)
		}
	}
}

// checkTyping checks that typing of an invisible user reaches no one.
func (w twins) checkTyping(t *testing.T) {
	t.Helper()
	connect := func(user string, server int) *websocket.Conn {
		socket := dialTwin(t, w.servers[server%len(w.servers)], w.hidden)
		t.Cleanup(func() { _ = socket.CloseNow() })
		writeFrame(t, socket, fmt.Sprintf(`{"hello":{"user":%q%s}}`, user, tokenField(bearerOf(t, user, w.hidden))))
		_, welcome, err := socket.Read(t.Context())
		require.NoError(t, err)
		require.Contains(t, string(welcome), `{"welcome"`)
		return socket
	}
	bobby := connect("bobby", 0)
	for _, user := range []string{"alice", "carla"} {
		socket := connect(user, 1)
		writeFrame(t, socket, `{"typing":{"to":["bobby"]},"id":1}`)
		_, answer, err := socket.Read(t.Context())
		require.NoError(t, err)
		require.JSONEq(t, `{"ok":{},"id":1}`, string(answer))
	}
	for {
		_, frame, err := bobby.Read(t.Context())
		require.NoError(t, err)
		if strings.HasPrefix(string(frame), `{"typing"`) {
			require.Contains(t, string(frame), `"user":"carla"`)
			return
		}
	}
}
