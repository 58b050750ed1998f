package api

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// callsBackup is what a Redis has of calls at some time.
type callsBackup struct {
	client *redis.Client
	keys   map[string]string
}

func backUpCalls(t *testing.T, url string) callsBackup {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	b := callsBackup{redis.NewClient(options), map[string]string{}}
	t.Cleanup(func() { b.client.Close() })
	for _, key := range b.client.Keys(t.Context(), "presence:call*").Val() {
		b.keys[key] = b.client.Dump(t.Context(), key).Val()
	}
	require.NotEmpty(t, b.keys)
	return b
}

// restore has the Redis lose what came after the backup, as a replica does that takes over.
func (b callsBackup) restore(t *testing.T) {
	t.Helper()
	for _, key := range b.client.Keys(t.Context(), "presence:call*").Val() {
		require.NoError(t, b.client.Del(t.Context(), key).Err())
	}
	for key, dump := range b.keys {
		require.NoError(t, b.client.Restore(t.Context(), key, 0, dump).Err())
	}
}

// loseSignals has servers find that signals may have been lost, as when their Redis is replaced.
func loseSignals(servers ...*testServer) {
	for _, w := range servers {
		w.config.Shared.receive(store.Signal{})
	}
}

// TestCallWhoseEndIsLost: clients were sent that a call is over, and then Redis lost that. It ends again, for the users
// are connected and would be in it forever. Clients of theirs that did not know are sent the end.
func TestCallWhoseEndIsLost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		accepts bool
		user    string // who ends it
		over    lastseen.CallState
		again   []any // how it ends again, whichever server is first
	}{
		{true, "bob", lastseen.Ended, []any{"ended"}},
		{false, "alice", lastseen.Cancelled, []any{"cancelled", "rejected"}},
		{false, "bob", lastseen.Rejected, []any{"cancelled", "rejected"}},
	} {
		t.Run(string(test.over), func(t *testing.T) {
			t.Parallel()
			url := redistest.Start(t)
			one, two := newRedisSocketServer(t, url), newRedisSocketServer(t, url)
			alice, _ := one.hello(`{"user":"alice"}`)
			bob, _ := two.hello(`{"user":"bob"}`)
			both := func(call map[string]any, state lastseen.CallState) {
				t.Helper()
				wantCall(t, alice, call, state)
				wantCall(t, bob, call, state)
			}
			call := one.call(`{"from":"alice","to":"bob"}`)
			both(call, lastseen.Ringing)
			if test.accepts {
				two.post(callPath(call)+"/accept", `{"user":"bob"}`)
				both(call, lastseen.Active)
			}
			backup := backUpCalls(t, url)
			two.post(callPath(call)+"/end", `{"user":"`+test.user+`"}`)
			both(call, test.over)

			backup.restore(t)
			late, welcome := one.hello(`{"user":"alice"}`)
			require.Len(t, welcome["calls"], 1, "it goes on")
			loseSignals(one, two)
			require.Contains(t, test.again, late.want(frameCall)["state"])
			both(two.call(`{"from":"bob","to":"alice"}`), lastseen.Ringing) // and were not sent the end again
		})
	}
}

// TestCallWhoseLastVersionsAreLost: Redis has lost that a call was accepted, and what its app has said since. Clients
// are sent how it ends, although they were sent later versions.
func TestCallWhoseLastVersionsAreLost(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	one, two := newRedisSocketServer(t, url), newRedisSocketServer(t, url)
	alice, _ := one.hello(`{"user":"alice"}`)
	call := one.call(`{"from":"alice","to":"bob"}`)
	wantCall(t, alice, call, lastseen.Ringing)
	backup := backUpCalls(t, url)
	two.post(callPath(call)+"/accept", `{"user":"bob"}`)
	wantCall(t, alice, call, lastseen.Active)
	for _, app := range []string{"1", "2"} {
		two.post(callPath(call)+"/alive", `{"user":"bob","app":`+app+`}`)
		wantCall(t, alice, call, lastseen.Active)
	}
	backup.restore(t)
	loseSignals(one, two)
	require.Equal(t, "rejected", two.post(callPath(call)+"/end", `{"user":"bob"}`)["state"])
	wantCall(t, alice, call, lastseen.Rejected)
}
