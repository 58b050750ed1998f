package main

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// world is a site with a store of its own: one server, or two that share a Redis. In its namespace "room", tokens see
// only users who have their user among their contacts. In "hall", they see everyone.
type world struct {
	servers []string // URLs
	store   store.Store
}

const (
	room = "/v1/namespaces/room"

	// worldWait is how long anything may take. It does not measure; it ends a test that hangs.
	worldWait = time.Minute

	// worldConfig has thresholds that no user passes during a test.
	worldConfig = `
jwt-secret-file: %s
jwt-namespaces: ["*"]
user-rate-limit: off
disconnect-grace: 0
green: 10h
yellow: 20h
ping-interval: 1s
show-kinds: on
namespaces:
  room: {visibility: contacts}
  hall: {visibility: everyone}
keys:
  reader: {hash: "%s", scopes: [read], namespaces: ["*"]}
  writer: {hash: "%s", scopes: [ping], namespaces: ["*"]}
  outside: {hash: "%s", scopes: [read, ping], namespaces: ["else"]}
  all: {hash: "%s", scopes: [ping, read, admin], namespaces: ["*"]}
`
)

// eachWorlds runs a test with n worlds in which each has a server with an embedded store, and with n worlds in which
// each has two servers on a Redis.
func eachWorlds(t *testing.T, n int, test func(t *testing.T, worlds []world)) {
	t.Helper()
	file := writeConfig(t, names+fmt.Sprintf(worldConfig, writeFile(t, "secret", []byte(secret)),
		hashOf("ls_reader"), hashOf("ls_writer"), hashOf("ls_outside"), hashOf("ls_all")))
	load := func(t *testing.T, flags map[string]string) *config.Config {
		all := map[string]string{"config": file, "admin-listen": "off"}
		maps.Copy(all, flags)
		c, err := config.Loader{Flags: all}.Load()
		require.NoError(t, err)
		return c
	}
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		worlds := make([]world, n)
		for i := range worlds {
			url, s := serveTwins(t, load(t, map[string]string{"store": filepath.Join(t.TempDir(), "data.db")}))
			worlds[i] = world{[]string{url}, s}
		}
		test(t, worlds)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		flags := map[string]string{
			"store": redistest.Start(t), "redis-timeout": "30s", "redis-dial-timeout": "30s", "redis-invisible": "on",
		}
		worlds := make([]world, n)
		for i := range worlds {
			flags["redis-prefix"] = fmt.Sprintf("world%d:", i)
			first, s := serveTwins(t, load(t, flags))
			second, _ := serveTwins(t, load(t, flags))
			worlds[i] = world{[]string{first, second}, s}
		}
		test(t, worlds)
	})
}

// do sends a request that has to succeed to one of the servers, with all rights.
func (w world) do(t *testing.T, server int, method, path, body string) {
	t.Helper()
	r := send(t, w.servers[server%len(w.servers)], method, path, body, "ls_all")
	require.Less(t, r.status, 300, "%s %s: %s", method, path, r.body)
}

// doAll sends the same request to all worlds: to the first server of each.
func doAll(t *testing.T, worlds []world, method, path, body string) {
	t.Helper()
	for _, w := range worlds {
		w.do(t, 0, method, path, body)
	}
}

// roomToken returns the token of a user for the room.
func roomToken(t *testing.T, user string) string {
	t.Helper()
	return bearerOf(t, user, "room")
}

// askReady sends a request for which the server may not be ready yet: a changes feed that was not swept in time.
func askReady(t *testing.T, server, method, path, body, credential string, headers ...string) (r response) {
	t.Helper()
	require.Eventually(t, func() bool {
		r = send(t, server, method, path, body, credential, headers...)
		return r.status != http.StatusServiceUnavailable
	}, worldWait, 100*time.Millisecond, "%s %s stays unavailable", method, path)
	return r
}

var worldMasks = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	{regexp.MustCompile(`"(request_id|connection)":"[^"]+"`), `"$1":"RANDOM"`},
	{regexp.MustCompile(`"(poll_after_ms|expires_in_ms)":\d+`), `"$1":0`},
}

var (
	nowPattern  = regexp.MustCompile(`"as_of":"[^"]*"`)
	pagePattern = regexp.MustCompile(`"next_cursor":"[^"]*"`)
)

// maskWorld hides what differs from one request to the next. Cursors of changes remain, since they must be the same in
// two worlds whose users look the same. Unless the time is fixed, it is hidden, and of the cursors of lists, which have
// it, only the length remains.
func maskWorld(text string, fixed bool) string {
	for _, m := range worldMasks {
		text = m.pattern.ReplaceAllString(text, m.mask)
	}
	if fixed {
		return text
	}
	text = nowPattern.ReplaceAllString(text, `"as_of":"NOW"`)
	return pagePattern.ReplaceAllStringFunc(text, func(s string) string {
		return fmt.Sprintf(`"next_cursor":%d`, len(s))
	})
}

// masked returns a response without what differs from one request to the next.
func (r response) masked(fixed bool) response {
	r.header = r.header.Clone()
	r.header.Del("Date")
	if r.header.Get("Content-Length") == strconv.Itoa(len(r.body)) {
		r.header.Del("Content-Length") // the body is compared
	}
	r.body = maskWorld(r.body, fixed)
	if r.header.Get("Lastseen-Ping-After-Ms") != "" {
		r.header.Set("Lastseen-Ping-After-Ms", "random")
	}
	return r
}

// sameIn fails the test if two worlds respond differently. It asks again if one of them has not caught up with a change
// that both know of: see [same].
func sameIn(t *testing.T, what string, one, other func() response) response {
	t.Helper()
	var got, want response
	deadline := time.Now().Add(worldWait)
	for range 5 {
		want, got = one(), other()
		if assert.ObjectsAreEqual(want, got) {
			return got
		}
		require.Less(t, time.Now(), deadline, what)
	}
	require.Equal(t, want, got, what)
	return got
}

// shownTo returns what a caller sees of a user in a lookup, in words.
func (w world) shownTo(t *testing.T, server int, credential, user string) string {
	t.Helper()
	r := send(t, w.servers[server%len(w.servers)], http.MethodGet, room+"/users/"+user, "", credential)
	require.Equal(t, http.StatusOK, r.status, r.body)
	return inWords(decoded(t, r.body))
}

// listedTo returns the users in the list that a caller gets, newest first.
func (w world) listedTo(t *testing.T, server int, credential string) string {
	t.Helper()
	r := send(t, w.servers[server%len(w.servers)], http.MethodGet, room+"/users?limit=1000", "", credential)
	require.Equal(t, http.StatusOK, r.status, r.body)
	var users []string
	for _, presence := range decoded(t, r.body)["users"].([]any) {
		users = append(users, presence.(map[string]any)["user"].(string))
	}
	return strings.Join(users, " ")
}
