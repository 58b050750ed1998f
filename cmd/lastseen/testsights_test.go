package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// sight is what a client is told of changes while it follows them.
type sight struct {
	way string
	mu  sync.Mutex

	first   string            // the first event or frame
	entries []string          // the users told since the last flush
	shown   map[string]string // the users told, in words
	cursor  string            // the newest one, of a batch
	ticks   int
	wrong   []string // what must not happen
}

// decoded returns a JSON object.
func decoded(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &object), text)
	return object
}

// take notes an event, a frame or a response. One that is fresh replaces what was shown before.
func (s *sight) take(name, data string, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh {
		clear(s.shown)
	}
	first := s.first == ""
	if first {
		s.first = name + " " + maskWorld(data, false)
	}
	var batch struct {
		Users  []json.RawMessage
		Cursor string
	}
	if err := json.Unmarshal([]byte(data), &batch); err != nil {
		s.wrong = append(s.wrong, data)
		return
	}
	switch name {
	case "tick":
		s.ticks++
		if batch.Cursor != s.cursor {
			s.wrong = append(s.wrong, fmt.Sprintf("a tick has %s after %s", batch.Cursor, s.cursor))
		}
		return
	case "welcome", "changes", "poll":
	default:
		s.wrong = append(s.wrong, name+" "+data)
		return
	}
	if batch.Cursor != "" {
		s.cursor = batch.Cursor
	}
	if name == "changes" && !first && len(batch.Users) == 0 { // when it comes shows something
		s.wrong = append(s.wrong, "no changes: "+data)
	}
	for _, user := range batch.Users {
		var presence map[string]any
		_ = json.Unmarshal(user, &presence) // it is part of what was decoded
		s.entries = append(s.entries, string(user))
		s.shown[presence["user"].(string)] = inWords(presence)
	}
}

// words returns what is shown of a user.
func (s *sight) words(user string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.shown[user], "never seen")
}

// until waits until a user is shown in some words.
func (s *sight) until(t *testing.T, user, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.words(user) == want }, worldWait, 10*time.Millisecond,
		"%s should show %s as %q", s.way, user, want)
}

// place returns the cursor after which another client continues.
func (s *sight) place() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor
}

// begin returns the first event or frame. What was told until now is not part of the next flush.
func (s *sight) begin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = nil
	return s.first
}

// check fails the test if something happened that must not.
func (s *sight) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.wrong, s.way)
}

// flush waits until the marker has been told with a time, and at least n users in all, and returns what was told since
// the last call, by user, and the cursor.
func (s *sight) flush(t *testing.T, mark string, n int) (told []string, cursor string) {
	t.Helper()
	marked := func(entry string) bool {
		return strings.Contains(entry, `"user":"marker"`) && strings.Contains(entry, mark)
	}
	arrived := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.entries) >= n && slices.ContainsFunc(s.entries, marked)
	}
	require.Eventually(t, arrived, worldWait, 5*time.Millisecond, "%s: %d users with the marker %s", s.way, n, mark)
	s.check(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	told, s.entries = s.entries, nil
	slices.Sort(told)
	return told, s.cursor
}

// sightQuery is what a client follows: some users, or everyone.
type sightQuery struct {
	name  string
	users []string // nil for everyone
}

// query returns the query of a URL.
func (q sightQuery) query() string { return url.Values{"user": q.users}.Encode() }

// watch returns the field "watch" of the frame hello.
func (q sightQuery) watch() string {
	if q.users == nil {
		return `{"everyone":true}`
	}
	users, _ := json.Marshal(q.users) // never fails
	return `{"users":` + string(users) + `}`
}

// openStreams follows changes in the room by events and by frames, on one server, until the test ends.
func openStreams(t *testing.T, server, credential string, asked ...sightQuery) (all []*sight) {
	t.Helper()
	for _, q := range asked {
		events := &sight{way: q.name + " by events", shown: map[string]string{}}
		frames := &sight{way: q.name + " by frames", shown: map[string]string{}}
		background(t, func(ctx context.Context) error { return events.readEvents(ctx, server, credential, q) })
		background(t, func(ctx context.Context) error { return frames.readFrames(ctx, server, credential, q) })
		all = append(all, events, frames)
	}
	for _, s := range all {
		require.Eventually(t, func() bool { return s.place() != "" }, worldWait, 5*time.Millisecond, s.way)
	}
	return all
}

// openPolls follows changes in the room by long polls, one after the other.
func openPolls(t *testing.T, server, credential string, asked ...sightQuery) (all []*sight) {
	t.Helper()
	for _, q := range asked {
		polls := &sight{way: q.name + " by polls", shown: map[string]string{}}
		background(t, func(ctx context.Context) error { return polls.poll(ctx, server, credential, q) })
		all = append(all, polls)
	}
	return all
}

// background runs a function until the test ends. It must not end before.
func background(t *testing.T, run func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); ctx.Err() == nil {
			t.Errorf("a client ended: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// errStreamEnded means that a server ended a stream.
var errStreamEnded = errors.New("the stream ended")

// readEvents follows changes by Server-Sent Events until the stream ends.
func (s *sight) readEvents(ctx context.Context, server, credential string, q sightQuery) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+room+"/changes?"+q.query(), http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+credential)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	events := readEvents(answer.Body)
	for {
		name, data := events.any()
		if name == "" {
			return errStreamEnded
		}
		s.take(name, data, false)
	}
}

// readFrames follows changes by a WebSocket until it ends.
func (s *sight) readFrames(ctx context.Context, server, credential string, q sightQuery) error {
	target := "ws" + strings.TrimPrefix(server, "http") + room + "/connect"
	socket, _, err := websocket.Dial(ctx, target, nil) //nolint:bodyclose // not needed
	if err != nil {
		return err
	}
	defer socket.CloseNow()
	socket.SetReadLimit(1 << 20)
	hello := `{"hello":{"watch":` + q.watch() + tokenField(credential) + `}}`
	if err := socket.Write(ctx, websocket.MessageText, []byte(hello)); err != nil {
		return err
	}
	for {
		_, data, err := socket.Read(ctx)
		if err != nil {
			return err
		}
		var frame map[string]json.RawMessage
		if err := json.Unmarshal(data, &frame); err != nil {
			return err
		}
		for name, content := range frame {
			s.take(name, string(content), false)
		}
	}
}

// poll follows changes by long polls until one fails.
func (s *sight) poll(ctx context.Context, server, credential string, q sightQuery) error {
	query := q.query()
	for {
		body, err := fetch(ctx, server+room+"/changes?"+query, credential)
		if err != nil {
			return err
		}
		var answer struct{ Reset bool }
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			return err
		}
		first := s.place() == ""
		s.take("poll", body, answer.Reset && q.users != nil)
		if q.users == nil && (first || answer.Reset) {
			if body, err = fetch(ctx, server+room+"/users?limit=1000", credential); err != nil {
				return err
			}
			s.take("poll", body, true)
		}
		query = q.query() + "&wait=5s&cursor=" + url.QueryEscape(s.place())
	}
}

// fetch returns the response to a GET request, which it repeats while the server is not ready.
func fetch(ctx context.Context, target, credential string) (string, error) {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
		if err != nil {
			return "", err
		}
		r.Header.Set("Authorization", "Bearer "+credential)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		switch {
		case err != nil:
			return "", err
		case answer.StatusCode == http.StatusOK:
			return string(body), nil
		case answer.StatusCode != http.StatusServiceUnavailable:
			return "", fmt.Errorf("%d: %s", answer.StatusCode, body)
		}
		time.Sleep(100 * time.Millisecond) // as a client does
	}
}
