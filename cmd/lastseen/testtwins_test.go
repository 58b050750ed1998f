package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// twins are two namespaces with the same users. In the first, some users leave. In the second, they become invisible at
// the same times, and their devices go on.
type twins struct {
	left, hidden string
	servers      []string // URLs
	store        store.Store
	open         bool // to anonymous readers
	toContacts   bool // users are visible to their contacts
	turn         *int // how often they were compared: see skips
}

// newTwins returns the namespaces left-n and hide-n.
func newTwins(n int, servers []string, s store.Store) twins {
	return twins{
		left: fmt.Sprint("left-", n), hidden: fmt.Sprint("hide-", n), servers: servers, store: s, turn: new(int),
	}
}

// skips reports whether to leave out the probe with a number in this turn. In full, each turn has all probes;
// otherwise, it has a third of them, and the next turn another third.
func (w twins) skips(number int) bool { return !testenv.Full() && (number+*w.turn)%3 != 0 }

const twinsConfig = `
jwt-secret-file: %s
jwt-namespaces: ["*"]
anonymous-read: "left-1,hide-1"
user-rate-limit: off
rate-limit: off
disconnect-grace: 0
green: 1s
yellow: 2s
ping-interval: 1s
show-kinds: on
namespaces:
  left-0: {green: 10m, yellow: 20m, ring-timeout: 10m}
  hide-0: {green: 10m, yellow: 20m, ring-timeout: 10m}
  left-2: {green: 10m, yellow: 20m, visibility: contacts}
  hide-2: {green: 10m, yellow: 20m, visibility: contacts}
  left-3: {green: 10m, yellow: 20m, ring-timeout: 2s}
  hide-3: {green: 10m, yellow: 20m, ring-timeout: 2s}
keys:
  reader-left: {hash: "%s", scopes: [read], namespaces: ["left-*"]}
  reader-hide: {hash: "%s", scopes: [read], namespaces: ["hide-*"]}
  writer: {hash: "%s", scopes: [ping], namespaces: ["*"]}
  outside: {hash: "%s", scopes: [read, ping], namespaces: ["else"]}
  admin: {hash: "%s", scopes: [admin], namespaces: ["*"]}
  all: {hash: "%s", scopes: [ping, read, admin], namespaces: ["*"]}
`

// ringTimeout returns how long calls in a namespace ring.
func ringTimeout(namespace string) time.Duration {
	switch {
	case strings.HasSuffix(namespace, "-0"):
		return 10 * time.Minute
	case strings.HasSuffix(namespace, "-3"):
		return 2 * time.Second
	}
	return 30 * time.Second
}

// eachTwins runs a test on a server with an embedded store, and on two servers on one Redis.
func eachTwins(t *testing.T, test func(t *testing.T, servers []string, s store.Store)) {
	t.Helper()
	testenv.SkipWithRace(t, "so many requests take minutes")
	load := func(t *testing.T, flags map[string]string) *config.Config {
		flags["config"] = writeConfig(t, names+fmt.Sprintf(twinsConfig, writeFile(t, "secret", []byte(secret)),
			hashOf("ls_left"), hashOf("ls_hide"), hashOf("ls_writer"), hashOf("ls_outside"), hashOf("ls_admin"),
			hashOf("ls_all")))
		flags["admin-listen"] = "off"
		c, err := config.Loader{Flags: flags}.Load()
		require.NoError(t, err)
		return c
	}
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		c := load(t, map[string]string{"store": filepath.Join(t.TempDir(), "data.db")})
		url, s := serveTwins(t, c)
		test(t, []string{url}, s)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redisURL := redistest.Start(t)
		haveHiddenUsers(t, redisURL)
		flags := map[string]string{"store": redisURL, "redis-timeout": "30s", "redis-dial-timeout": "30s"}
		first, s := serveTwins(t, load(t, flags))
		second, _ := serveTwins(t, load(t, flags))
		test(t, []string{first, second}, s)
	})
}

// haveHiddenUsers has all servers know from the start that there are invisible users. Otherwise the test would have to
// wait until they do.
func haveHiddenUsers(t *testing.T, url string) {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	for i := range 4 {
		for _, name := range []string{"left", "hide"} {
			field := fmt.Sprintf("%s-%d:hidden", name, i)
			require.NoError(t, client.HSet(t.Context(), "presence::meta", field, 1).Err())
		}
	}
}

// serveTwins serves as the program does until the test ends, and returns the URL and the store.
func serveTwins(t *testing.T, c *config.Config) (url string, s store.Store) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	shared := api.NewShared(api.Config{Logger: logger, BodyMemory: c.BodyMemory})
	s, where, err := openStore(t.Context(), c, logger, nil, shared.GapObserver(), nil)
	require.NoError(t, err)
	running, err := newRuntimeConfig(c, dependencies{
		store: s, shared: shared, logger: logger, level: new(slog.LevelVar),
		load: func() (*config.Config, error) { return c, nil },
	})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, streams{io.Discard, io.Discard}, listeners{clients: listener}, running, where, nil)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		running.close()
		require.NoError(t, s.Close())
	})
	return "http://" + listener.Addr().String(), s
}

// response is what a client sees of a response, and what only the test compares.
type response struct {
	status int
	header http.Header
	body   string
}

// send sends a request with a credential, which can be empty, and some headers, "Name: value".
func send(t *testing.T, server, method, path, body, credential string, headers ...string) response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("X-Request-Id", "twins")
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

// do sends a request that has to succeed to one of the servers, with all rights.
func (w twins) do(t *testing.T, server int, method, path, body string) response {
	t.Helper()
	r := send(t, w.servers[server%len(w.servers)], method, path, body, "ls_all")
	require.Less(t, r.status, 300, "%s %s: %s", method, path, r.body)
	return r
}

// both does the same in both namespaces.
func (w twins) both(t *testing.T, method, path, body string) {
	t.Helper()
	for _, namespace := range []string{w.left, w.hidden} {
		w.do(t, 0, method, "/v1/namespaces/"+namespace+path, body)
	}
}

// bearerOf returns a token of a user, for one namespace.
func bearerOf(t *testing.T, user, namespace string) string {
	t.Helper()
	return token(t, jwt.SigningMethodHS256, []byte(secret), map[string]any{"alg": "HS256"},
		claims(map[string]any{"sub": user, "namespaces": namespace}))
}

// exact returns a time as requests and responses have it.
func exact(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
