package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

const aliceAvailability = "/chat/users/alice/availability"

// aliceSays sets what alice says, and returns the response.
func (w *testServer) aliceSays(body string) map[string]any {
	w.t.Helper()
	r := w.send(http.MethodPut, aliceAvailability, body)
	require.Equal(w.t, http.StatusOK, r.status, r.body)
	return r.json(w.t)
}

// TestAvailability checks that what a user says is returned and shown until it is replaced or deleted.
func TestAvailability(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post(alicePing, "")
		says := func(availability, note, until any) {
			t.Helper()
			require.Equal(t, map[string]any{
				"user": "alice", "availability": availability, "note": note, "until": until,
			}, w.get(aliceAvailability))
			shown := w.get(aliceUser)
			require.Equal(t, "green", shown["status"])
			require.Equal(t, []any{availability, note, until},
				[]any{shown["availability"], shown["note"], shown["availability_until"]})
		}
		says(nil, nil, nil)
		for _, step := range []struct {
			body                      string
			availability, note, until any
		}{
			{
				`{"availability":"busy","note":"<i>in</i> a \"meeting\" 🗓","for":"1h30m"}`,
				"busy", `<i>in</i> a "meeting" 🗓`, "2026-11-20T13:30:00.000Z",
			},
			{`{"availability":"away"}`, "away", nil, nil},
			{`{"availability":null,"note":"back soon","for":60.5}`, nil, "back soon", "2026-11-20T12:01:00.500Z"},
			{
				`{"note":"` + strings.Repeat("😀", 140) + `","until":1795176001,"for":null}`,
				nil, strings.Repeat("😀", 140), "2026-11-20T12:00:01.000Z",
			},
			{`{"availability":"busy","note":null,"until":"2026-11-20T13:00:00+01:00"}`, nil, nil, nil},
			{`{"availability":"busy","until":"9999-12-31T23:59:59.999Z"}`, "busy", nil, "9999-12-31T23:59:59.999Z"},
			{`{}`, nil, nil, nil},
			{`{"availability":"away"}`, "away", nil, nil},
		} {
			if strings.Contains(step.body, "13:00:00+01:00") { // which is now
				w.fails(codeInvalidTime, http.MethodPut, aliceAvailability, step.body)
				continue
			}
			response := w.aliceSays(step.body)
			require.Equal(t, map[string]any{
				"user": "alice", "availability": step.availability, "note": step.note, "until": step.until,
			}, response)
			says(step.availability, step.note, step.until)
		}
		for range 2 {
			r := w.send(http.MethodDelete, aliceAvailability, "")
			require.Equal(t, http.StatusNoContent, r.status)
			require.Empty(t, r.body)
			says(nil, nil, nil)
		}
	})
}

// TestAvailabilityEnds checks that what a user says is not returned or shown from its end on, also in lists.
func TestAvailabilityEnds(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post(alicePing, "")
		w.aliceSays(`{"availability":"away","for":"10s"}`)
		for _, path := range []string{aliceUser, aliceAvailability, "/chat/users", aliceLookup} {
			for age, want := range map[time.Duration]bool{
				0: true, 9999 * time.Millisecond: true, 10 * time.Second: false,
			} {
				w.store.now = testNow.Add(age)
				shown := strings.Contains(w.send(http.MethodGet, path, "").body, `"away"`)
				require.Equal(t, want, shown, "%s %s", path, age)
			}
		}
	})
}

// TestAvailabilityErrors checks what is refused, and that nothing is recorded then.
func TestAvailabilityErrors(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	w.aliceSays(`{"availability":"away"}`)
	for body, want := range map[string]code{
		``: codeInvalidJSON, ` `: codeInvalidJSON, `[]`: codeInvalidJSON, `{"availability":1}`: codeInvalidJSON,
		`{"note":["x"]}`: codeInvalidJSON, `{"for":{}}`: codeInvalidJSON, `{"until":true}`: codeInvalidJSON,
		`{"note":"a","note":"b"}`: codeInvalidJSON, `{"status":"green"}`: codeUnknownField,
		`{"availability":"offline"}`: codeInvalidAvailability, `{"availability":"Busy"}`: codeInvalidAvailability,
		`{"for":"1h"}`: codeInvalidAvailability, `{"until":"2026-11-20T13:00:00Z"}`: codeInvalidAvailability,
		`{"note":"x","for":"1h","until":"2026-11-20T13:00:00Z"}`: codeInvalidAvailability,
		`{"note":"` + strings.Repeat("ä", 141) + `"}`:            codeInvalidNote,
		`{"note":"a\nb"}`: codeInvalidNote, `{"note":"\u202e"}`: codeInvalidNote, `{"note":"\u0000"}`: codeInvalidNote,
		`{"note":"x","for":"0"}`: codeInvalidDuration, `{"note":"x","for":"-1s"}`: codeInvalidDuration,
		`{"note":"x","for":""}`: codeInvalidDuration, `{"note":"x","for":"11y"}`: codeInvalidDuration,
		`{"note":"x","until":"soon"}`: codeInvalidTime, `{"note":"x","until":"2026-11-20T12:00:00Z"}`: codeInvalidTime,
		`{"note":"x","until":1795176000000}`: codeInvalidTime, `{"note":"x","until":-1}`: codeInvalidTime,
		`{"note":"x","until":"10000-01-01T00:00:00Z"}`:       codeInvalidTime,
		`{"note":"` + strings.Repeat(" ", maxOneBody) + `"}`: codeBodyTooLarge,
	} {
		w.fails(want, http.MethodPut, aliceAvailability, body)
	}
	w.fails(codeInvalidUser, http.MethodPut, "/chat/users/%00/availability", `{}`)
	w.fails(codeInvalidNamespace, http.MethodGet, "/.chat/users/alice/availability", "")
	w.fails(codeUnknownParameter, http.MethodGet, aliceAvailability+"?as_of=0", "")
	require.Equal(t, "away", w.get(aliceAvailability)["availability"])
}

// TestAvailabilityNeedsABody checks that a request whose body is missing changes nothing, also if its length is not
// known before.
func TestAvailabilityNeedsABody(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	w.aliceSays(`{"availability":"away"}`)
	const start = "PUT /v1/namespaces/chat/users/alice/availability HTTP/1.1\r\nHost: lastseen\r\nConnection: close\r\n"
	for _, rest := range []string{
		"\r\n", "Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"Content-Length: 4\r\n\r\nnull",
	} {
		got := w.exchange(start + rest)
		require.Equal(t, http.StatusBadRequest, got[0].status, rest)
	}
	require.Equal(t, "away", w.get(aliceAvailability)["availability"])
}

// TestAvailabilityUntilTheEndOfTime checks that the end of what a user says is a valid time, whatever the clock is.
func TestAvailabilityUntilTheEndOfTime(t *testing.T) {
	t.Parallel()
	var b availabilityBody
	b.Note, b.For = "x", new(scalar("10000h"))
	said, err := b.said(lastseen.MaxInstant - 1)
	require.NoError(t, err)
	require.Equal(t, lastseen.Said{Note: "x", Until: lastseen.MaxInstant}, said)
}

// settlingStore is a store in which users can become invisible after some attempts. Only Redis is like this, in the
// first half minute of a namespace.
type settlingStore struct {
	idleStore
	rests    []time.Duration // of the attempts that fail
	attempts int
}

func (*settlingStore) Now(context.Context) (lastseen.Instant, error) { return testNow, nil }

func (s *settlingStore) SetAvailability(
	context.Context, string, string, lastseen.Said, lastseen.Instant,
) (lastseen.State, error) {
	s.attempts++
	if s.attempts > len(s.rests) {
		return lastseen.State{}, nil
	}
	return lastseen.State{}, fmt.Errorf("a store: %w", &store.SettlingError{Rest: s.rests[s.attempts-1]})
}

func (*settlingStore) Signal(context.Context, store.Signal) error { return nil }

// TestSettling checks that a request waits until the user can become invisible, but not for more than 5 seconds, and
// not for nothing.
func TestSettling(t *testing.T) {
	t.Parallel()
	said := lastseen.Said{Availability: lastseen.Invisible}
	for _, test := range []struct {
		rests    []time.Duration
		attempts int
		waited   time.Duration
		failed   bool
	}{
		{nil, 1, 0, false},
		{[]time.Duration{time.Second, time.Millisecond, 0}, 4, time.Second + 2*minSettling, false},
		{[]time.Duration{5 * time.Second}, 2, 5 * time.Second, false},
		{[]time.Duration{5*time.Second + 1}, 1, 0, true},
		{[]time.Duration{3 * time.Second, 3 * time.Second}, 2, 3 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := &settlingStore{rests: test.rests}
			s, begun := &server{Config: Config{Store: fake}}, time.Now()
			err := s.say(t.Context(), "chat", "alice", said)
			require.Equal(t, test.failed, err != nil, err)
			require.Equal(t, test.attempts, fake.attempts)
			require.Equal(t, test.waited, time.Since(begun))
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := &server{Config: Config{Store: &settlingStore{rests: []time.Duration{5 * time.Second}}}}
		require.ErrorIs(t, s.say(ctx, "chat", "alice", said), context.DeadlineExceeded, "the client is gone")
	})
}

// TestNotReady checks the response if the user cannot become invisible in time.
func TestNotReady(t *testing.T) {
	t.Parallel()
	for rest, want := range map[time.Duration]string{
		6 * time.Second: "6", 28*time.Second + 1: "29", 30 * time.Second: "30",
	} {
		w := newTestServer(t, &settlingStore{rests: []time.Duration{rest}})
		r := w.send(http.MethodPut, aliceAvailability, `{"availability":"invisible"}`)
		require.Equal(t, http.StatusServiceUnavailable, r.status)
		require.Equal(t, string(codeAvailabilityNotReady), r.json(t)["code"])
		require.Equal(t, want, r.header.Get("Retry-After"))
		require.NotContains(t, w.log.String(), "level=ERROR")
	}
}

// TestNoAvailability: a namespace in which users cannot say anything reports that.
func TestNoAvailability(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, &errStore{Store: fileStore(t), err: store.ErrNoAvailability})
	w.fails(codeNoAvailability, http.MethodPut, aliceAvailability, `{"availability":"busy"}`)
	w.fails(codeNoAvailability, http.MethodDelete, aliceAvailability, "")
}

// settledRedis returns a store on Redis in which all servers have known for long that there are invisible users.
func settledRedis(t *testing.T) store.Store {
	t.Helper()
	url := redistest.Start(t)
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(o)
	defer client.Close()
	require.NoError(t, client.HSet(t.Context(), "presence::meta", "chat:hidden", 1).Err())
	s, err := redisstore.Open(redisstore.Options{
		URL: url, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestInvisibleIsLeft compares what others get about a user who left and one who became invisible at the same time and
// goes on pinging.
func TestInvisibleIsLeft(t *testing.T) {
	t.Parallel()
	authenticator, headers := callers(t)
	for name, open := range map[string]func(*testing.T) store.Store{"file": fileStore, "redis": settledRedis} {
		t.Run(name, func(t *testing.T) { testInvisibleIsLeft(t, newAuthServer(t, open(t), authenticator), headers) })
	}
}

func testInvisibleIsLeft(t *testing.T, w *testServer, headers map[string]string) {
	t.Helper()
	send := func(caller, method, path, body string) testResponse {
		t.Helper()
		r := w.send(method, path, body, "Authorization: "+headers[caller])
		require.Less(t, r.status, 300, r.body)
		return r
	}
	users := []string{"alice", "blice"}
	w.store.now = testNow - 60_000
	for _, user := range users {
		send("all", http.MethodPost, "/chat/users/"+user+"/ping", `{"device":{"id":"tab","kind":"web"}}`)
		send("all", http.MethodPut, "/chat/users/"+user+"/availability", `{"availability":"away","note":"lunch"}`)
	}
	w.store.now = testNow
	send("all", http.MethodPut, aliceAvailability, `{"availability":"invisible","note":"hush","for":"1h"}`)
	send("all", http.MethodPost, "/chat/users/blice/leave", "")
	for range 2 {
		w.store.now += 30_000
		ping := send("alice", http.MethodPost, alicePing, `{"device":{"id":"tab","kind":"mobile"},"activity":"idle"}`)
		require.Equal(t, "grey", ping.json(t)["status"])
		require.Equal(t, http.StatusNoContent, send("ping", http.MethodPost, alicePing, "").status)
		for _, path := range []string{
			"/chat/users/%s", "/chat/users/%s/dot.svg", "/chat/lookup?user=%s", "/chat/users/%s/devices",
			"/chat/changes?user=%s", "/chat/counts",
		} {
			seen := [2]testResponse{}
			for i, user := range users {
				path := strings.ReplaceAll(path, "%s", user)
				seen[i] = send("read", http.MethodGet, path, "")
				seen[i].body = strings.ReplaceAll(seen[i].body, user, "someone")
				for _, name := range []string{"X-Request-Id", "Date", "Etag"} { // the ETag is a hash of the name, too
					seen[i].header.Del(name)
				}
				require.NotContains(t, seen[i].body, "invisible")
				require.NotContains(t, seen[i].body, "hush")
			}
			require.Equal(t, seen[1], seen[0], path)
		}
		listed := send("read", http.MethodGet, "/chat/users", "").json(t)["users"].([]any)
		delete(listed[0].(map[string]any), "user")
		delete(listed[1].(map[string]any), "user")
		require.Equal(t, listed[0], listed[1])
	}
	require.Equal(t, "away", send("read", http.MethodGet, aliceUser, "").json(t)["availability"])
	own := send("alice", http.MethodGet, aliceAvailability, "").json(t)
	require.Equal(t, []any{"invisible", "hush"}, []any{own["availability"], own["note"]})
	send("alice", http.MethodDelete, aliceAvailability, "")
	w.store.now++
	require.Equal(t, "green", send("alice", http.MethodPost, alicePing, "").json(t)["status"])
}
