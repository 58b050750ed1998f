package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func copyAll(args ...string) (code int, out, log string) {
	return runInProcess(append([]string{"copy"}, args...)...)
}

func newRedis(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

// TestOutgrown moves a server from its file to Redis as docs/copy.md says: a first copy while it runs, a second one of
// what changed. Who was deleted in between does not come back.
func TestOutgrown(t *testing.T) {
	data, url := filepath.Join(t.TempDir(), "data.db"), redistest.Start(t)
	s := testserver.Start(t, "--store", data, "--admin-listen", "127.0.0.1:0")
	for _, user := range []string{"alice", "bob", "carol"} {
		s.Post(t, "/v1/namespaces/chat/users/"+user+"/ping", `{"device":{"id":"phone"}}`)
	}
	s.Succeed(t, "PUT", "/v1/namespaces/chat/users/alice/availability", `{"availability":"busy","note":"hi"}`)
	s.Succeed(t, "PUT", "/v1/namespaces/chat/users/bob/availability", `{"availability":"invisible"}`)
	s.Post(t, "/v1/namespaces/gone/users/zoe/ping", "")
	code, out, log := copyAll("--from", s.Admin, "--to", url)
	require.Zero(t, code, log)
	require.Equal(t, "users 4, namespaces 2, changed 4, verified\n", out)

	s.Succeed(t, "DELETE", "/v1/namespaces/chat/users/carol", "")
	s.Succeed(t, "DELETE", "/v1/namespaces/gone?confirm=gone", "")
	s.Post(t, "/v1/namespaces/chat/users/dora/leave", "")
	code, _, log = copyAll("--from", data, "--to", url)
	require.Equal(t, 1, code)
	require.Contains(t, log, "in use by another process; stop that process")
	require.Zero(t, s.Terminate(t))
	code, _, log = copyAll("--from", data, "--to", url, "--compare")
	require.Equal(t, 1, code)
	require.Contains(t, log, "differ: users 2, namespaces 1")
	code, out, log = copyAll("--from", data, "--to", url)
	require.Zero(t, code, log)
	require.Equal(t, "users 3, namespaces 1, changed 2, verified\n", out)
	code, out, log = copyAll("--from", data, "--to", url, "--compare")
	require.Zero(t, code, log)
	require.Equal(t, "the same: users 3, namespaces 1\n", out)

	client := newRedis(t, url)
	require.NoError(t, client.Set(t.Context(), "presence::copy", "1", 0).Err())
	s = testserver.Start(t, "--store", url, "--redis-timeout", "30s")
	require.Zero(t, client.Exists(t.Context(), "presence::copy").Val(), "its users are not those of the copy alone")
	require.Equal(t, "busy", s.Get(t, "/v1/namespaces/chat/users/alice")["availability"])
	require.Equal(t, "grey", s.Get(t, "/v1/namespaces/chat/users/bob")["status"], "invisible")
	s.Post(t, "/v1/namespaces/chat/users/bob/ping", "")
	require.Equal(t, "grey", s.Get(t, "/v1/namespaces/chat/users/bob")["status"], "still invisible")
	require.Nil(t, s.Get(t, "/v1/namespaces/chat/users/carol")["last_seen"])
	require.Equal(t, true, s.Get(t, "/v1/namespaces/chat/users/dora")["left"])
	s.Post(t, "/v1/namespaces/chat/users/new/ping", "")
	require.Zero(t, s.Terminate(t))

	code, _, log = copyAll("--from", data, "--to", url)
	require.Equal(t, 1, code, "a server has used it")
	require.Contains(t, log, "there are users in ")
	back := filepath.Join(t.TempDir(), "back.db")
	code, out, log = copyAll("--from", url, "--to", back)
	require.Zero(t, code, log)
	require.Equal(t, "users 4, namespaces 1, changed 4, verified\n", out)
	code, _, log = copyAll("--from", url, "--to", back)
	require.Equal(t, 1, code)
	require.Contains(t, log, "back.db exists; replace it with --replace")
	code, out, log = copyAll("--from", back, "--to", url, "--compare")
	require.Zero(t, code, log)
	require.Equal(t, "the same: users 4, namespaces 1\n", out)

	require.NoError(t, client.ZAdd(t.Context(), "presence:other", redis.Z{Score: 1e12, Member: "zoe"}).Err())
	require.NoError(t, client.ZAdd(t.Context(), "presence::namespaces", redis.Z{Member: "other"}).Err())
	code, out, log = copyAll("--from", data, "--to", url, "--replace")
	require.Zero(t, code, log)
	require.Equal(t, "users 3, namespaces 1, changed 1, verified\n", out)
	require.ErrorIs(t, client.ZScore(t.Context(), "presence:chat", "new").Err(), redis.Nil)
	require.Zero(t, client.Exists(t.Context(), "presence:other").Val())
}

// fill has many users ping.
func fill(t *testing.T, s store.Store, users int) {
	t.Helper()
	now := lastseen.InstantOf(time.Now())
	for first := 0; first < users; first += 1000 {
		batch := make([]store.PresenceEvent, 1000)
		for i := range batch {
			batch[i] = store.PresenceEvent{User: fmt.Sprintf("user-%011d", first+i), At: now - lastseen.Instant(first)}
		}
		_, err := s.Ping(t.Context(), "load", batch)
		require.NoError(t, err)
	}
}

// TestCopyGoesOn: a copy that is killed in the middle goes on where it was, and what else is in the Redis stays.
func TestCopyGoesOn(t *testing.T) {
	data, url := filepath.Join(t.TempDir(), "data.db"), redistest.Start(t)
	client := newRedis(t, url)
	require.NoError(t, client.Set(t.Context(), "other", "kept", 0).Err())
	const users = 200_000
	file, err := filestore.Open(filestore.Options{Path: data, Sync: time.Minute})
	require.NoError(t, err)
	fill(t, file, users)
	require.NoError(t, file.Close())

	killed := testenv.Command(testserver.Binary(t), "copy", "--from", data, "--to", url)
	require.NoError(t, killed.Start())
	for client.ZCard(t.Context(), "presence:load").Val() == 0 {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait()
	before := client.ZCard(t.Context(), "presence:load").Val()
	require.Less(t, before, int64(users))
	require.EqualValues(t, 1, client.Exists(t.Context(), "presence::copy").Val())
	code, out, log := copyAll("--from", data, "--to", url)
	require.Zero(t, code, log)
	require.Equal(t, fmt.Sprintf("users %d, namespaces 1, changed %d, verified\n", users, users-before), out)
	require.Equal(t, "kept", client.Get(t.Context(), "other").Val())
	require.Zero(t, client.Exists(t.Context(), "presence::copy").Val())
}

// TestCopyReshapes: from the set of a program that follows the tutorial to one with several shards, and to another
// prefix.
func TestCopyReshapes(t *testing.T) {
	url := redistest.Start(t)
	client := newRedis(t, url)
	now := float64(time.Now().Unix())
	require.NoError(t, client.ZAdd(t.Context(), "online", redis.Z{Score: now - 10, Member: "alice"},
		redis.Z{Score: now - 20.5, Member: "bob"}, redis.Z{Score: 0, Member: "never"}).Err())
	tutorial := testserver.WriteConfig(t, "store: "+url+"\nnamespaces:\n  chat: {redis-key: online, redis-score-unit: s}\n")
	sharded := testserver.WriteConfig(t, "redis-prefix: \"new:\"\nredis-shards: 4\n")
	t.Setenv("LASTSEEN_STORE", "redis://127.0.0.1:1") // of the target, unless --to names it
	code, out, log := copyAll("--from-config", tutorial, "--to", url, "--config", sharded)
	require.Zero(t, code, log)
	require.Equal(t, "users 2, namespaces 1, changed 2, verified\n", out)
	s := testserver.Start(t, "--store", url, "--config", sharded, "--redis-timeout", "30s")
	seen, err := time.Parse(time.RFC3339, s.Get(t, "/v1/namespaces/chat/users/bob")["last_seen"].(string))
	require.NoError(t, err)
	require.Equal(t, int64((now-20.5)*1000), seen.UnixMilli())
	s.Post(t, "/v1/namespaces/chat/users/alice/ping", `{"device":{"id":"phone"}}`)
	require.Zero(t, s.Terminate(t))

	back := filepath.Join(t.TempDir(), "back.db")
	code, out, log = copyAll("--from", url, "--config", sharded, "--to", back)
	require.Zero(t, code, log)
	require.Equal(t, "users 2, namespaces 1, changed 2, verified\n", out)
	code, out, log = copyAll("--from", back, "--config", tutorial, "--to", url, "--compare")
	require.Equal(t, 1, code, "alice has a device: %s", log)
	require.Empty(t, out)

	code, _, log = copyAll("--from", url, "--from-config", sharded, "--to", url, "--config", tutorial, "--replace")
	require.Equal(t, 1, code)
	require.Contains(t, log, "devices, availability and contacts cannot be kept in online, which other programs write")
}

// TestCopyErrors: each says what is wrong, and nothing is written.
func TestCopyErrors(t *testing.T) {
	dir := t.TempDir()
	foreign, data := filepath.Join(dir, "notes.txt"), filepath.Join(dir, "data.db")
	require.NoError(t, os.WriteFile(foreign, []byte("precious"), 0o600))
	for line, want := range map[string]string{
		"":                                   "2 lastseen: copy: --from: name what to copy",
		"--from A --to A":                    "1 lastseen: A is both the source and the target",
		"--from none --to DATA":              "1 lastseen: open ",
		"--from NOTES --to DATA":             "1 lastseen: NOTES: not a lastseen data file",
		"--from http://127.0.0.1:1 --to A":   "1 lastseen: Post ",
		"--from A --to http://127.0.0.1:1":   "2 lastseen: copy: --to: name a file or the URL of a Redis",
		"--from redis://127.0.0.1:1 --to A":  "1 lastseen: store unavailable: ",
		"--from A --to redis://h --config N": "2 no such file",
	} {
		names := strings.NewReplacer("NOTES", foreign, "DATA", data)
		code, out, log := copyAll(strings.Fields(names.Replace(line))...)
		require.Empty(t, out, line)
		wantCode, text, _ := strings.Cut(names.Replace(want), " ")
		require.Equal(t, wantCode, strconv.Itoa(code), line)
		require.Contains(t, log, text, line)
		require.NoFileExists(t, data)
		require.NoFileExists(t, "A")
	}
}
