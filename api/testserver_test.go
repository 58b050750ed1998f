package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func TestMain(m *testing.M) {
	testenv.WaitInParallel()
	testenv.LimitWalks(100)
	os.Exit(m.Run())
}

// testNow is the server's time when a test starts.
const testNow lastseen.Instant = 1_795_176_000_000

// clockStore is a store whose clock a test sets.
type clockStore struct {
	store.Store
	now atomic.Int64
}

// newClockStore returns a store at the time when a test starts.
func newClockStore(s store.Store) *clockStore {
	c := &clockStore{Store: s}
	c.set(testNow)
	return c
}

func (c *clockStore) set(now lastseen.Instant) { c.now.Store(int64(now)) }
func (c *clockStore) pass(ms int64)            { c.now.Add(ms) }

func (c *clockStore) Now(ctx context.Context) (lastseen.Instant, error) {
	if _, err := c.Store.Now(ctx); err != nil {
		return 0, err
	}
	return lastseen.Instant(c.now.Load()), nil
}

// testServer is a running server on a real store.
type testServer struct {
	t     *testing.T
	url   string
	store *clockStore
	log   *lockedLog
	*contract
	config  Config
	handler atomic.Pointer[http.Handler]
}

// ServeHTTP serves a request with the current handler; see [http.Handler].
func (w *testServer) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	(*w.handler.Load()).ServeHTTP(response, request)
}

// reload replaces the handler by one with a changed configuration. What handlers share is kept.
func (w *testServer) reload(change func(*Config)) {
	change(&w.config)
	handler := New(w.config)
	w.handler.Store(&handler)
}

// newAuthServer serves a store to authenticated callers.
func newAuthServer(t *testing.T, s store.Store, authenticator *auth.Authenticator) *testServer {
	t.Helper()
	return newTestServer(t, s, func(c *Config) { c.Auth = authenticator })
}

// newTestServer serves a store over HTTP without authentication. The changes apply to its configuration.
func newTestServer(t *testing.T, s store.Store, changes ...func(*Config)) *testServer {
	t.Helper()
	w := &testServer{t: t, store: newClockStore(s), log: &lockedLog{}, contract: newContract(t)}
	w.config = Config{
		Store: w.store, Settings: testSettings(), Version: Version{Version: "v0.0.0-test", Go: "go"},
		Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Random: func() float64 { return 0.5 }, Now: clockFrom(testNow),
	}
	w.config.Settings.Shards, w.config.Settings.ShowCalls = 1, true
	for _, change := range changes {
		change(&w.config)
	}
	if w.config.Feeds == nil {
		w.config.Feeds = followed(t, s, w.config.Settings)
	}
	w.reload(func(c *Config) {
		if c.Shared == nil {
			c.Shared = NewShared(*c)
		}
	})
	server := httptest.NewServer(w.check(w))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// testSettings are those of test servers.
func testSettings() Settings {
	return Settings{
		Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
		PingInterval: 30 * time.Second,
	}
}

// clockFrom returns a clock that begins at a time and goes on from there: whether tokens of tests are valid does not
// depend on the date.
func clockFrom(start lastseen.Instant) func() time.Time {
	began := time.Now()
	return func() time.Time { return time.UnixMilli(int64(start)).Add(time.Since(began)) }
}

// newLimitedServer serves a store with the limits of a real server.
func newLimitedServer(t *testing.T) *testServer {
	t.Helper()
	w := newTestServer(t, fileStore(t))
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(New(Config{Store: w.store, Settings: testSettings()}), slog.New(slog.DiscardHandler))
	server.Start()
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func fileStore(t *testing.T) store.Store {
	t.Helper()
	return openFileStore(t, filestore.Options{})
}

func openFileStore(t testing.TB, o filestore.Options) store.Store {
	t.Helper()
	o.Path, o.Sync, o.Logger = storetest.DataFile(t), time.Second, slog.New(slog.DiscardHandler)
	s, err := filestore.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// redisStore opens a store on a Redis. The changes apply to its options.
func redisStore(t *testing.T, url string, changes ...func(*redisstore.Options)) *redisstore.Store {
	t.Helper()
	o := redisstore.Options{
		URL: url, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&o)
	}
	s, err := redisstore.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func sharded(o *redisstore.Options) { o.Shards = 3 }

// eachStore runs a test on both stores.
func eachStore(t *testing.T, test func(*testing.T, *testServer)) {
	t.Helper()
	t.Run("file", func(t *testing.T) { test(t, newTestServer(t, fileStore(t))) })
	t.Run("redis", func(t *testing.T) { test(t, newTestServer(t, redisStore(t, redistest.Start(t), sharded))) })
}

// Bounds for what happens soon.
const (
	eventually = time.Minute
	tick       = 5 * time.Millisecond
)

// testResponse is a response with its complete body.
type testResponse struct {
	status int
	header http.Header
	body   string
}

// json returns the body as an object.
func (r testResponse) json(t testing.TB) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &object), "%d %s", r.status, r.body)
	return object
}

// is checks the status.
func (r testResponse) is(t testing.TB, status int, why ...any) testResponse {
	t.Helper()
	require.Equal(t, status, r.status, "%s: %s", fmt.Sprint(why...), r.body)
	return r
}

// addHeaders adds headers, which are "Name: value".
func addHeaders(to http.Header, headers []string) {
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		to.Add(name, value)
	}
}

// serve sends a request to a handler, without a network.
func serve(handler http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, "http://localhost"+target, strings.NewReader(body)), httptest.NewRecorder()
	addHeaders(r.Header, headers)
	handler.ServeHTTP(w, r)
	return w
}

// readTestResponse reads the body of a response.
func readTestResponse(t testing.TB, response *http.Response) testResponse {
	t.Helper()
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return testResponse{response.StatusCode, response.Header, string(content)}
}

// send sends a request below /v1/namespaces; headers are "Name: value".
func (w *testServer) send(method, path, body string, headers ...string) testResponse {
	w.t.Helper()
	return w.sendTo(method, "/v1/namespaces"+path, body, headers...)
}

func (w *testServer) sendTo(method, path, body string, headers ...string) testResponse {
	w.t.Helper()
	r, err := w.trySend(method, path, body, headers...)
	require.NoError(w.t, err)
	return r
}

func (w *testServer) trySend(method, path, body string, headers ...string) (testResponse, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		return testResponse{}, err
	}
	addHeaders(request.Header, headers)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return testResponse{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return testResponse{response.StatusCode, response.Header, string(content)}, err
}

// later sends a request below /v1/namespaces on another goroutine, and returns where its response comes. An error is
// the body.
func (w *testServer) later(method, path, body string, headers ...string) <-chan testResponse {
	responded := make(chan testResponse, 1)
	go func() {
		r, err := w.trySend(method, "/v1/namespaces"+path, body, headers...)
		if err != nil {
			r.body = err.Error()
		}
		responded <- r
	}()
	return responded
}

func (w *testServer) get(path string, headers ...string) map[string]any {
	w.t.Helper()
	return w.send("GET", path, "", headers...).is(w.t, http.StatusOK).json(w.t)
}

func (w *testServer) post(path, body string, headers ...string) map[string]any {
	w.t.Helper()
	return w.send("POST", path, body, headers...).is(w.t, http.StatusOK).json(w.t)
}

// write sends a request that changes something and has a response without a body.
func (w *testServer) write(method, path, body string) {
	w.t.Helper()
	r := w.send(method, path, body).is(w.t, http.StatusNoContent)
	require.Empty(w.t, r.body)
	require.Equal(w.t, noStore[0], r.header.Get("Cache-Control"))
}

// say sets what alice says, and returns the response.
func (w *testServer) say(body string) map[string]any {
	w.t.Helper()
	return w.send("PUT", aliceAvailability, body).is(w.t, http.StatusOK).json(w.t)
}

// fails sends a request that has to fail with a code, and returns the problem.
func (w *testServer) fails(want problem.Code, method, path, body string, headers ...string) map[string]any {
	w.t.Helper()
	r := w.send(method, path, body, headers...)
	what := fmt.Sprintf("%s %s %.80s: %s", method, path, body, r.body)
	require.Equal(w.t, want.Type().Status, r.status, what)
	require.Equal(w.t, "application/problem+json", r.header.Get("Content-Type"), what)
	p := r.json(w.t)
	require.Equal(w.t, string(want), p["code"], what)
	require.Equal(w.t, "/docs/errors#"+string(want), p["type"], what)
	require.EqualValues(w.t, r.status, p["status"], what)
	require.NotEmpty(w.t, p["detail"], what)
	require.Equal(w.t, r.header.Get("X-Request-Id"), p["request_id"], what)
	return p
}

const ndjson = "Content-Type: application/x-ndjson"

// total returns the number of users in a namespace.
func (w *testServer) total(namespace string) int {
	w.t.Helper()
	return int(w.get("/" + namespace + "/counts")["total"].(float64))
}

// names returns the users in a response.
func names(response map[string]any) []string { return each(response, "users", "user") }

// each returns a member of each object in a list.
func each(response map[string]any, list, member string) []string {
	found := []string{}
	for _, entry := range response[list].([]any) {
		found = append(found, entry.(map[string]any)[member].(string))
	}
	return found
}

// firstOf returns the first object in a list.
func firstOf(response map[string]any, list string) map[string]any {
	return response[list].([]any)[0].(map[string]any)
}
