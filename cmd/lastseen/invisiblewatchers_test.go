package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// twinWatcher collects what a client that follows a namespace is sent.
type twinWatcher struct {
	way, namespace string

	mu      sync.Mutex
	entries []string        // presences, as they arrived
	marks   map[string]bool // the times of the marker that arrived
	cursor  string          // of the newest batch
	counts  []string        // without the time
	wrong   []string        // what must not be sent
}

// add notes what came with a name.
func (w *twinWatcher) add(name string, data []byte) {
	var batch struct {
		Users       []json.RawMessage
		Cursor      string
		More, Reset bool
		AsOf        string `json:"as_of"`
	}
	err := json.Unmarshal(data, &batch)
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.cursor == ""
	switch {
	case name == "counts":
		w.counts = append(w.counts, strings.Replace(string(data), batch.AsOf, "NOW", 1))
		return
	case name == "tick" && err == nil:
		return
	case err != nil, name != "changes" && name != "poll", batch.More, batch.Reset && !first, batch.Cursor == "",
		name == "changes" && !first && len(batch.Users) == 0: // when that comes shows that something happened
		w.wrong = append(w.wrong, name+" "+string(data))
	}
	w.cursor = batch.Cursor
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

// flush waits until the marker has arrived, and returns what came since the last call, by user, and the cursor.
func (w *twinWatcher) flush(t *testing.T, mark string) (entries []string, cursor string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.marks[mark]
	}, time.Minute, time.Millisecond, "%s: the marker %s does not arrive", w.way, mark)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.wrong, w.way)
	entries, w.entries = w.entries, nil
	slices.Sort(entries)
	return entries, w.cursor
}

// flushCounts waits until the newest counts are these, and returns all since the last call.
func (w *twinWatcher) flushCounts(t *testing.T, newest string) (counts []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.counts) > 0 && w.counts[len(w.counts)-1] == newest
	}, time.Minute, 10*time.Millisecond, "%s: the counts %s do not arrive", w.way, newest)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.wrong, w.way)
	counts, w.counts = w.counts, w.counts[len(w.counts)-1:]
	return counts
}

var placePattern = regexp.MustCompile(`-(\d+)$`)

// entriesBefore returns how many entries a feed has before a cursor, where cursors show it: in the embedded store.
// Otherwise, it returns "".
func entriesBefore(t *testing.T, cursor string) string {
	t.Helper()
	content, err := base64.RawURLEncoding.DecodeString(cursor)
	require.NoError(t, err)
	if place := placePattern.FindSubmatch(content); place != nil {
		return string(place[1])
	}
	return ""
}

// follow follows a namespace on a server as a caller in all ways, some users and everyone. The watchers of two
// namespaces correspond to each other. Where users are visible to their contacts, it polls no changes: after a cursor,
// there are resets, which [twinFollowers.comparePlaces] compares. Users get no counts there.
func (w twins) follow(t *testing.T, server, namespace, name, credential string) (watchers []*twinWatcher) {
	t.Helper()
	add := func(way string) *twinWatcher {
		watcher := &twinWatcher{way: name + " " + way, namespace: namespace, marks: map[string]bool{}}
		watchers = append(watchers, watcher)
		return watcher
	}
	const some = "user=alice&user=davey&user=erica&user=frank&user=marker"
	for _, query := range []string{"?" + some, "?"} {
		target := server + "/v1/namespaces/" + namespace + "/changes" + query
		followEvents(t, target, credential, add("events "+query))
		if !w.toContacts {
			followPolls(t, target, credential, add("polls "+query))
		}
	}
	watches := []string{`"users":["alice","davey","erica","frank","marker"]`, `"everyone":true`}
	if !w.toContacts {
		watches = append(watches, `"everyone":true,"counts":true`)
	}
	for _, watch := range watches {
		followFrames(t, dialTwin(t, server, namespace),
			`{"hello":{"watch":{`+watch+`}`+tokenField(credential)+`}}`, add("frames "+watch))
	}
	return watchers
}

// followEvents follows by Server-Sent Events until the test ends.
func followEvents(t *testing.T, target, credential string, to *twinWatcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
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
	to.add(name, []byte(data))
	reading.Go(func() {
		for {
			name, data := events.any()
			if name == "" {
				return
			}
			to.add(name, []byte(data))
		}
	})
}

// followPolls passes on a cursor by long polls, one after the other, until the test ends.
func followPolls(t *testing.T, target, credential string, to *twinWatcher) {
	t.Helper()
	first, err := fetch(t.Context(), target, credential)
	require.NoError(t, err)
	to.add("poll", []byte(first))
	background(t, func(ctx context.Context) error {
		for {
			to.mu.Lock()
			cursor := to.cursor
			to.mu.Unlock()
			next, err := fetch(ctx, target+"&wait=5s&cursor="+url.QueryEscape(cursor), credential)
			if err != nil {
				return err
			}
			to.add("poll", []byte(next))
		}
	})
}

// followFrames follows by a WebSocket until the test ends.
func followFrames(t *testing.T, socket *websocket.Conn, hello string, to *twinWatcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	writeFrame(t, socket, hello)
	var reading sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		_ = socket.CloseNow()
	})
	_, data, err := socket.Read(ctx)
	require.NoError(t, err)
	name, content := frameOf(data)
	require.Equal(t, "welcome", name, "%s", data)
	to.add("changes", content)
	reading.Go(func() {
		for {
			_, data, err := socket.Read(ctx)
			if err != nil {
				return
			}
			to.add(frameOf(data))
		}
	})
}

// frameOf returns the name and the content of a frame without an ID. The name of one that is not valid is "".
func frameOf(data []byte) (name string, content []byte) {
	var frame map[string]json.RawMessage
	if json.Unmarshal(data, &frame) != nil || len(frame) != 1 {
		return "", data
	}
	for name, content := range frame {
		return name, content
	}
	return "", data
}

// twinSocket is a connection of a user. It answers the pings of the server.
type twinSocket struct {
	*websocket.Conn
	frames chan string
}

// connect opens a connection of a user of the hidden namespace to a server, with more fields of the hello.
func (w twins) connect(t *testing.T, server int, user, fields string) *twinSocket {
	t.Helper()
	s := &twinSocket{dialTwin(t, w.servers[server%len(w.servers)], w.hidden), make(chan string, 1000)}
	t.Cleanup(func() { _ = s.CloseNow() })
	go func() {
		defer close(s.frames)
		for {
			_, frame, err := s.Read(context.Background())
			if err != nil {
				return
			}
			s.frames <- string(frame)
		}
	}()
	s.ask(t, fmt.Sprintf(`{"hello":{"user":%q,%s%s}}`, user, fields, tokenField(bearerOf(t, user, w.hidden))), "welcome")
	return s
}

// ask sends a frame, and waits for one with a name.
func (s *twinSocket) ask(t *testing.T, frame, want string) {
	t.Helper()
	writeFrame(t, s.Conn, frame)
	s.await(t, want)
}

// await waits for a frame with a name.
func (s *twinSocket) await(t *testing.T, want string) {
	t.Helper()
	for answer := range s.frames {
		if strings.HasPrefix(answer, `{"`+want+`"`) {
			return
		}
		require.NotContains(t, answer, "problem")
	}
	t.Fatalf("the connection ended before %s: %v", want, io.ErrUnexpectedEOF)
}
