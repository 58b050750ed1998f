package privacy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

	"github.com/lastseen/lastseen/internal/testserver"
)

// observation is what a client is sent while it follows changes.
type observation struct {
	site
	way string
	mu  sync.Mutex

	first   string   // the first event or frame
	entries []string // the users sent since the last flush
	cursor  string   // the newest one, of a batch
	counts  []string // those since the last flush, and the last one before
	ticks   int
	wrong   []string // what must not happen
	resets  bool     // a poll can be a reset, in which friends do not count
}

// take notes an event, a frame or a response.
func (s *observation) take(name, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.first == ""
	if first {
		s.first = name + " " + s.mask(data, false)
	}
	var batch struct {
		Users       []json.RawMessage
		Cursor      string
		More, Reset bool
	}
	if err := json.Unmarshal([]byte(data), &batch); err != nil {
		s.wrong = append(s.wrong, data)
		return
	}
	wrong := ""
	switch name {
	case "counts":
		s.counts = append(s.counts, s.mask(data, false))
		return
	case "tick":
		if s.ticks++; s.namespace == room && len(batch.Cursor) != len(s.cursor) {
			s.wrong = append(s.wrong, fmt.Sprintf("a tick has %s after %s", batch.Cursor, s.cursor))
		}
		return
	case "welcome":
	case "poll":
		switch {
		case batch.Reset && s.resets:
			batch.Users = slices.DeleteFunc(batch.Users, func(u json.RawMessage) bool { return isFriend.Match(u) })
		case batch.Reset:
			wrong = "a reset"
		}
	case "changes":
		if !first && (len(batch.Users) == 0 || batch.Reset) { // when it comes shows something
			wrong = "no changes"
		}
	default:
		wrong = "unexpected"
	}
	if wrong != "" || batch.More || batch.Cursor == "" {
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %s %s", wrong, name, data))
	}
	s.cursor = cmp.Or(batch.Cursor, s.cursor)
	for _, user := range batch.Users {
		s.entries = append(s.entries, string(user))
	}
}

// allowResets says whether a poll can be a reset.
func (s *observation) allowResets(allowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets = allowed
}

// position returns the cursor after which another client continues.
func (s *observation) position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor
}

// begin returns the first event or frame. What was sent until now is not part of the next flush.
func (s *observation) begin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = nil
	return s.first
}

// check fails the test if something happened that must not.
func (s *observation) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.wrong, s.way)
}

// flush waits until the marker has been sent with a time, and at least n other users, and returns those that were sent
// since the last call, by user, and the cursor.
func (s *observation) flush(t *testing.T, mark string, n int) (sent []string, cursor string) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		marked := func(entry string) bool { return isMarker(entry) && strings.Contains(entry, mark) }
		return len(s.entries) > n && slices.ContainsFunc(s.entries, marked)
	}, testWait, 5*time.Millisecond, "%s: %d users with the marker %s", s.way, n, mark)
	s.check(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	sent = slices.DeleteFunc(s.entries, isMarker)
	s.entries = nil
	slices.Sort(sent)
	return sent, s.cursor
}

// isFriend matches entries of bobby, and of those whom he sees: see [bobbyContacts].
var isFriend = regexp.MustCompile(`"user":"(bobby|carla|frank|hank)"`)

func isMarker(entry string) bool { return strings.Contains(entry, `"user":"marker"`) }

// flushCounts waits until the newest counts are some, and returns all since the last call.
func (s *observation) flushCounts(t *testing.T, newest string) (counts []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.counts) > 0 && s.counts[len(s.counts)-1] == newest
	}, testWait, 5*time.Millisecond, "%s: the counts %s", s.way, newest)
	s.mu.Lock()
	defer s.mu.Unlock()
	counts, s.counts = s.counts, s.counts[len(s.counts)-1:]
	return counts
}

// followQuery is what a client follows: some users, or everyone.
type followQuery struct {
	name   string
	users  []string // nil for everyone
	counts bool
}

func (q followQuery) query() string { return url.Values{"user": q.users}.Encode() }

// watch returns the field "watch" of the frame hello.
func (q followQuery) watch() string {
	switch {
	case q.users == nil && q.counts:
		return `{"everyone":true,"counts":true}`
	case q.users == nil:
		return `{"everyone":true}`
	}
	users, _ := json.Marshal(q.users) // never fails
	return `{"users":` + string(users) + `}`
}

// openStreams follows changes by events and by frames, on one server, until the test ends.
func (s site) openStreams(t *testing.T, server int, credential string, asked ...followQuery) (all []*observation) {
	t.Helper()
	for _, q := range asked {
		for by, follow := range map[string]func(*observation, context.Context, string, string, followQuery) error{
			"events": (*observation).readEvents, "frames": (*observation).readFrames,
		} {
			if q.counts && by == "events" {
				continue
			}
			all = append(all, s.open(t, server, q.name+" by "+by, func(ctx context.Context, to *observation) error {
				return follow(to, ctx, s.server(server), credential, q)
			}))
		}
	}
	slices.SortFunc(all, func(a, b *observation) int { return strings.Compare(a.way, b.way) })
	return all
}

// openPolls follows changes by long polls, one after the other.
func (s site) openPolls(t *testing.T, server int, credential string, asked ...followQuery) (all []*observation) {
	t.Helper()
	for _, q := range asked {
		all = append(all, s.open(t, server, q.name+" by polls", func(ctx context.Context, to *observation) error {
			return to.poll(ctx, s.server(server), credential, q)
		}))
	}
	return all
}

// open begins to follow. It returns when the first event, frame or response is there.
func (s site) open(
	t *testing.T, server int, way string, follow func(context.Context, *observation) error,
) *observation {
	t.Helper()
	to := &observation{site: s, way: fmt.Sprintf("%s on server %d", way, server)}
	background(t, func(ctx context.Context) error { return follow(ctx, to) })
	require.Eventually(t, func() bool { return to.position() != "" }, testWait, 5*time.Millisecond, to.way)
	return to
}

// background runs a function until the test ends. It must not end before.
func background(t testing.TB, run func(ctx context.Context) error) {
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

// readEvents follows changes by Server-Sent Events until the stream ends.
func (s *observation) readEvents(ctx context.Context, server, credential string, q followQuery) error {
	target := server + s.namespace + "/changes?" + q.query()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
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
	events := testserver.ReadEvents(answer.Body)
	for {
		name, data := events.Any()
		if name == "" {
			return errors.New("the stream ended")
		}
		s.take(name, data)
	}
}

// readFrames follows changes by a WebSocket until it ends.
func (s *observation) readFrames(ctx context.Context, server, credential string, q followQuery) error {
	target := "ws" + strings.TrimPrefix(server, "http") + s.namespace + "/connect"
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
			s.take(name, string(content))
		}
	}
}

// poll follows changes by long polls until one fails.
func (s *observation) poll(ctx context.Context, server, credential string, q followQuery) error {
	query := q.query()
	for {
		body, err := fetch(ctx, server+s.namespace+"/changes?"+query, credential)
		if err != nil {
			return err
		}
		s.take("poll", body)
		query = q.query() + "&wait=5s&cursor=" + url.QueryEscape(s.position())
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
