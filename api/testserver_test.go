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
	now lastseen.Instant
}

func (c *clockStore) Now(ctx context.Context) (lastseen.Instant, error) {
	if _, err := c.Store.Now(ctx); err != nil {
		return 0, err
	}
	return c.now, nil
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
	w := &testServer{t: t, store: &clockStore{Store: s, now: testNow}, log: &lockedLog{}, contract: newContract(t)}
	w.config = Config{
		Store: w.store,
		Settings: Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
			PingInterval: 30 * time.Second, Shards: 1, ShowCalls: true,
		},
		Version: Version{Version: "v0.0.0-test", Go: "go"},
		Logger:  slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Random:  func() float64 { return 0.5 },
		Now:     clockFrom(testNow),
	}
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
	server.Config = NewServer(New(Config{
		Store: w.store, Settings: Settings{Thresholds: lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}},
	}), slog.New(slog.DiscardHandler))
	server.Start()
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func fileStore(t *testing.T) store.Store {
	t.Helper()
	s, err := filestore.Open(filestore.Options{Path: storetest.DataFile(t), Sync: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// fileStoreAt returns a file store whose clock begins at an instant.
func fileStoreAt(t *testing.T, now lastseen.Instant) store.Store {
	t.Helper()
	began := time.Now()
	clock := func() time.Time { return time.UnixMilli(int64(now)).Add(time.Since(began)) }
	s, err := filestore.Open(filestore.Options{Path: storetest.DataFile(t), Sync: time.Second, Now: clock})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// eachStore runs a test on both stores.
func eachStore(t *testing.T, test func(*testing.T, *testServer)) {
	t.Helper()
	t.Run("file", func(t *testing.T) { test(t, newTestServer(t, fileStore(t))) })
	t.Run("redis", func(t *testing.T) {
		s, err := redisstore.Open(redisstore.Options{
			URL: redistest.Start(t), Shards: 3, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second,
			Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		test(t, newTestServer(t, s))
	})
}

// testResponse is a response with its complete body.
type testResponse struct {
	status int
	header http.Header
	body   string
}

// json returns the body as an object.
func (r testResponse) json(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &object), "%d %s", r.status, r.body)
	return object
}

// send sends a request below /v1/namespaces; headers are "Name: value".
func (w *testServer) send(method, path, body string, headers ...string) testResponse {
	w.t.Helper()
	return w.sendTo(method, "/v1/namespaces"+path, body, headers...)
}

func (w *testServer) sendTo(method, path, body string, headers ...string) testResponse {
	w.t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, w.url+path, strings.NewReader(body))
	require.NoError(w.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return testResponse{response.StatusCode, response.Header, string(content)}
}

func (w *testServer) get(path string) map[string]any {
	w.t.Helper()
	r := w.send(http.MethodGet, path, "")
	require.Equal(w.t, http.StatusOK, r.status, r.body)
	return r.json(w.t)
}

func (w *testServer) post(path, body string, headers ...string) map[string]any {
	w.t.Helper()
	r := w.send(http.MethodPost, path, body, headers...)
	require.Equal(w.t, http.StatusOK, r.status, r.body)
	return r.json(w.t)
}

// fails sends a request that has to fail with a code, and returns the problem.
func (w *testServer) fails(want code, method, path, body string, headers ...string) map[string]any {
	w.t.Helper()
	r := w.send(method, path, body, headers...)
	what := fmt.Sprintf("%s %s %.80s: %s", method, path, body, r.body)
	require.Equal(w.t, want.problemType().Status, r.status, what)
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
func names(response map[string]any) []string {
	found := []string{}
	for _, u := range response["users"].([]any) {
		found = append(found, u.(map[string]any)["user"].(string))
	}
	return found
}
