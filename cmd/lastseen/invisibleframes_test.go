package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// twinHello follows the users who leave, and others.
const twinHello = `{"hello":{"watch":{"users":["alice","davey","erica","bobby"]}%s}}`

// compareFrames compares the first frame of connections that follow the users, and how those end that may not.
func (w twins) compareFrames(t *testing.T, phase, server string) {
	t.Helper()
	for _, caller := range w.callers(t) {
		ask := func(namespace, other, credential string) func() response {
			return func() response {
				socket := dialTwin(t, server, namespace)
				defer socket.CloseNow()
				writeFrame(t, socket, fmt.Sprintf(twinHello, tokenField(credential)))
				_, frame, err := socket.Read(t.Context())
				require.NoError(t, err)
				return response{body: maskOwn(string(frame), namespace, other)}
			}
		}
		same(t, phase+": frames to "+caller.name,
			ask(w.left, w.hidden, caller.left), ask(w.hidden, w.left, caller.hidden))
	}
}

func tokenField(credential string) string {
	if credential == "" {
		return ""
	}
	return fmt.Sprintf(`,"token":%q`, credential)
}

func dialTwin(t *testing.T, server, namespace string) *websocket.Conn {
	t.Helper()
	url := "ws" + strings.TrimPrefix(server, "http") + "/v1/namespaces/" + namespace + "/connect"
	socket, _, err := websocket.Dial(t.Context(), url, nil) //nolint:bodyclose // not needed
	require.NoError(t, err)
	socket.SetReadLimit(1 << 20)
	return socket
}

func writeFrame(t *testing.T, socket *websocket.Conn, frame string) {
	t.Helper()
	require.NoError(t, socket.Write(t.Context(), websocket.MessageText, []byte(frame)))
}

// twinWatcher collects what a stream of a namespace has of its users.
type twinWatcher struct {
	namespace string
	mu        sync.Mutex
	entries   []string        // presences, as they arrived
	marks     map[string]bool // the times of the marker that arrived
}

// add notes the presences of a batch of changes.
func (w *twinWatcher) add(t *testing.T, data []byte) {
	var batch struct{ Users []json.RawMessage }
	if json.Unmarshal(data, &batch) != nil {
		t.Errorf("%s is not a batch of changes", data)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, user := range batch.Users {
		if text := string(user); strings.Contains(text, `"user":"marker"`) {
			var marker struct {
				LastSeen string `json:"last_seen"`
			}
			_ = json.Unmarshal(user, &marker) // flush waits for the time
			w.marks[marker.LastSeen] = true
		} else {
			w.entries = append(w.entries, text)
		}
	}
}

// flush waits until the marker has arrived, and returns what came since the last call, by user.
func (w *twinWatcher) flush(t *testing.T, mark string) []string {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.marks[mark]
	}, time.Minute, time.Millisecond, "the marker %s does not arrive", mark)
	w.mu.Lock()
	defer w.mu.Unlock()
	entries := w.entries
	w.entries = nil
	slices.Sort(entries)
	return entries
}

// follow follows a namespace on a server as a reader: by events and by a WebSocket, some users and everyone.
func (w twins) follow(t *testing.T, server, namespace, credential string) (watchers []*twinWatcher) {
	t.Helper()
	add := func() *twinWatcher {
		watcher := &twinWatcher{namespace: namespace, marks: map[string]bool{}}
		watchers = append(watchers, watcher)
		return watcher
	}
	const some = "user=alice&user=davey&user=erica&user=marker"
	for _, query := range []string{"?" + some, ""} {
		followEvents(t, server+"/v1/namespaces/"+namespace+"/changes"+query, credential, add())
	}
	for _, watch := range []string{`"users":["alice","davey","erica","marker"]`, `"everyone":true`} {
		followFrames(t, dialTwin(t, server, namespace),
			`{"hello":{"watch":{`+watch+`}`+tokenField(credential)+`}}`, add())
	}
	return watchers
}

func followEvents(t *testing.T, url, credential string, to *twinWatcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	var reading sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		answer.Body.Close()
	})
	events := readEvents(answer.Body)
	name, data := events.next()
	require.Equal(t, "changes", name)
	to.add(t, []byte(data))
	reading.Go(func() {
		for {
			name, data := events.next()
			if name == "" {
				return
			}
			to.add(t, []byte(data))
		}
	})
}

func followFrames(t *testing.T, socket *websocket.Conn, hello string, to *twinWatcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	writeFrame(t, socket, hello)
	_, _, err := socket.Read(ctx)
	require.NoError(t, err)
	var reading sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		_ = socket.CloseNow()
	})
	reading.Go(func() {
		for {
			_, data, err := socket.Read(ctx)
			if err != nil {
				return
			}
			var frame map[string]json.RawMessage
			if json.Unmarshal(data, &frame) != nil {
				t.Errorf("%s is not a frame", data)
				return
			}
			for name, content := range frame {
				switch name {
				case "changes":
					to.add(t, content)
				case "tick":
				default:
					to.add(t, fmt.Appendf(nil, `{"users":[%q]}`, name)) // none is expected
				}
			}
		}
	})
}
