package privacy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// site has its own store: one server with an embedded store, or two servers on a Redis.
type site struct {
	servers   []string // URLs
	sent      *sentTimes
	store     store.Store
	namespace string
}

// pair is two sites with the same users. In the first, some users left or never came. In the second, they hide: they
// are invisible, or strangers to those who look, and go on. All that others can learn has to be the same.
type pair struct {
	gone, hiding site
	begun        time.Time
	turn         int                           // how often they were compared: see skips
	marks        int                           // how often the marker changed: see flush
	observations map[*observation]*observation // what the same client is sent by the first site, and by the second
	positions    []*keptPosition
	still        bool // nothing changes after cursors of strangersPath
}

// The namespaces of a site. In a room, tokens see only users who have their user among their contacts; elsewhere, they
// see everyone. Calls in a booth ring shortly. A yard is open to callers without credentials, and statuses there change
// with time after seconds; elsewhere, no user passes a threshold during a test.
const (
	room, hall  = "/v1/namespaces/room", "/v1/namespaces/hall"
	booth, yard = "/v1/namespaces/booth", "/v1/namespaces/yard"

	// testWait is how long anything may take. It does not measure; it ends a test that hangs.
	testWait = 2 * time.Minute
)

// eachPair runs a test in a namespace of two sites with embedded stores, and of two sites on Redis.
func eachPair[T testing.TB](t T, run func(name string, test func(T)), namespace string, test func(t T, w *pair)) {
	t.Helper()
	testenv.SkipWithRace(t, "so many requests take minutes")
	start := func(t T, one, other site) {
		one.namespace, other.namespace = namespace, namespace
		test(t, &pair{gone: one, hiding: other, begun: time.Now(), observations: map[*observation]*observation{}})
	}
	run("file", func(t T) { start(t, openOnFile(t), openOnFile(t)) })
	run("redis", func(t T) {
		url := redistest.Start(t)
		start(t, openOnRedis(t, url, "gone:"), openOnRedis(t, url, "hiding:"))
	})
}

// testPair is eachPair for tests, which run in parallel.
func testPair(t *testing.T, namespace string, test func(t *testing.T, w *pair)) {
	t.Helper()
	eachPair(t, func(name string, test func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}, namespace, test)
}

// response is what a client sees of a response, and what only the test compares.
type response struct {
	status int
	header http.Header
	body   string
}

// send sends a request with a credential, which can be empty, and some headers, "Name: value".
func send(t testing.TB, server, method, path, body, credential string, headers ...string) response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("X-Request-Id", "pair")
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return response{answer.StatusCode, answer.Header, string(content)}
}

// do sends a request about the namespace to one of the servers, with all rights. It has to succeed.
func (s site) do(t testing.TB, server int, method, path, body string) response {
	t.Helper()
	r := s.send(t, server, method, path, body, "ls_all")
	require.Less(t, r.status, 300, "%s %s: %s", method, path, r.body)
	return r
}

// send sends a request about the namespace to one of the servers, with a credential.
func (s site) send(t testing.TB, server int, method, path, body, credential string, headers ...string) response {
	t.Helper()
	return s.request(t, server, method, s.namespace+path, body, credential, headers...)
}

// request sends a request to one of the servers. It repeats it while a changes feed, which nobody has followed, is not
// ready.
func (s site) request(
	t testing.TB, server int, method, path, body, credential string, headers ...string,
) (r response) {
	t.Helper()
	require.Eventually(t, func() bool {
		r = send(t, s.server(server), method, path, body, credential, headers...)
		return r.status != http.StatusServiceUnavailable
	}, testWait, 100*time.Millisecond, "%s %s stays unavailable", method, path)
	return r
}

func (s site) server(i int) string { return s.servers[i%len(s.servers)] }

func (w *pair) both(t testing.TB, method, path, body string) {
	t.Helper()
	for _, s := range []site{w.gone, w.hiding} {
		s.do(t, 0, method, path, body)
	}
}

// shownTo returns what a caller sees of a user in a lookup, in words.
func (s site) shownTo(t *testing.T, server int, credential, user string) string {
	t.Helper()
	r := s.send(t, server, http.MethodGet, "/users/"+user, "", credential)
	require.Equal(t, http.StatusOK, r.status, r.body)
	return testserver.InWords(decoded(t, r.body))
}

// listedTo returns the users in the list that a caller gets, newest first.
func (s site) listedTo(t *testing.T, server int, credential string) string {
	t.Helper()
	r := s.send(t, server, http.MethodGet, "/users?limit=1000", "", credential)
	require.Equal(t, http.StatusOK, r.status, r.body)
	var users []string
	for _, presence := range decoded(t, r.body)["users"].([]any) {
		users = append(users, presence.(map[string]any)["user"].(string))
	}
	return strings.Join(users, " ")
}

func (s site) tokenOf(t testing.TB, user string) string {
	t.Helper()
	return bearerOf(t, user, s.name())
}

func (s site) name() string { return strings.TrimPrefix(s.namespace, "/v1/namespaces/") }

// bearerOf returns a token of a user, for one namespace.
func bearerOf(t testing.TB, user, namespace string) string {
	t.Helper()
	return testserver.UserToken(t, map[string]any{"sub": user, "namespaces": namespace})
}

// exact returns a time as requests and responses have it.
func exact(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// ago returns a time before the test began.
func (w *pair) ago(d time.Duration) string { return exact(w.begun.Add(-d)) }

func decoded(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &object), text)
	return object
}

// sameSoon is same for what follows the feeds. The watermarks of the two advance at different moments, within two
// seconds.
func (w *pair) sameSoon(t *testing.T, what string, ask func(s site) response) response {
	t.Helper()
	return w.sameWithin(t, 40, what, ask)
}

// sameByClock is same for statuses that change with time meanwhile. The servers of the two have read the clock of Redis
// apart.
func (w *pair) sameByClock(t *testing.T, what string, ask func(s site) response) response {
	t.Helper()
	return w.sameWithin(t, 4, what, ask)
}

// sameWithin is same, but the sites may respond differently at first: so many times, 50 milliseconds apart.
func (w *pair) sameWithin(t *testing.T, times int, what string, ask func(s site) response) response {
	t.Helper()
	for range times {
		if got := ask(w.hiding); assert.ObjectsAreEqual(ask(w.gone), got) {
			return got
		}
		time.Sleep(50 * time.Millisecond)
	}
	return w.same(t, what, ask)
}

// same fails the test if the sites respond differently. If the first one changes its response meanwhile, it asks again.
func (w *pair) same(t *testing.T, what string, ask func(s site) response) response {
	t.Helper()
	var got response
	for range 20 {
		before := ask(w.gone)
		got = ask(w.hiding)
		if assert.ObjectsAreEqual(before, got) {
			return got
		}
		if after := ask(w.gone); assert.ObjectsAreEqual(before, after) {
			require.Equal(t, before, got, what)
		}
	}
	t.Fatalf("%s: the response changes all the time: %+v", what, got)
	return got
}

var (
	randomPattern   = regexp.MustCompile(`"(request_id|connection|poll_after_ms|expires_in_ms)":("[^"]+"|\d+)`)
	positionPattern = regexp.MustCompile(`"cursor":"[^"]+"`)
	nowPattern      = regexp.MustCompile(`"as_of":"[^"]*"`)
	pagePattern     = regexp.MustCompile(`"next_cursor":"[^"]*"`)
)

// mask hides what differs from one request to the next. Of cursors of changes, which are sealed in a room, the length
// remains there. Unless the time is fixed, it is hidden, and of the cursors of lists, which have it, the length
// remains.
func (s site) mask(text string, fixed bool) string {
	text = randomPattern.ReplaceAllString(text, `"$1":"RANDOM"`)
	text = positionPattern.ReplaceAllStringFunc(text, func(cursor string) string {
		if s.namespace != room {
			return `"cursor":"POSITION"`
		}
		return fmt.Sprintf(`"cursor":%d`, len(cursor)-len(`"cursor":""`))
	})
	if fixed {
		return text
	}
	text = nowPattern.ReplaceAllString(text, `"as_of":"NOW"`)
	return pagePattern.ReplaceAllStringFunc(text, func(s string) string {
		return fmt.Sprintf(`"next_cursor":%d`, len(s))
	})
}

// masked returns a response without what differs from one request to the next. Content-Length remains only where it is
// not the length of the body.
func (s site) masked(r response, fixed bool) response {
	r.header = r.header.Clone()
	r.header.Del("Date")
	if r.header.Get("Content-Length") == strconv.Itoa(len(r.body)) {
		r.header.Del("Content-Length")
	}
	if r.header.Get("Lastseen-Ping-After-Ms") != "" {
		r.header.Set("Lastseen-Ping-After-Ms", "random")
	}
	r.body = s.mask(r.body, fixed)
	return r
}
