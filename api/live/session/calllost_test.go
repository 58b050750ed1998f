package session_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
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
func loseSignals(servers ...*apitest.Server) {
	for _, w := range servers {
		w.Config.Shared.Receive(store.Signal{})
	}
}

// TestCallWhoseEndIsLost: clients were sent that a call has ended, and then Redis lost that. It ends again once it is
// read, for the users are connected and would be in it forever. Clients are not sent it.
func TestCallWhoseEndIsLost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		accepts bool
		user    string // who ends it
		over    lastseen.CallState
	}{
		{true, "bob", lastseen.Ended},
		{false, "alice", lastseen.Cancelled},
		{false, "bob", lastseen.Rejected},
	} {
		t.Run(string(test.over), func(t *testing.T) {
			t.Parallel()
			url := redistest.Start(t)
			one, two := apitest.NewRedisSocketServer(t, url), apitest.NewRedisSocketServer(t, url)
			alice, _ := one.Hello(`{"user":"alice"}`)
			bob, _ := two.Hello(`{"user":"bob"}`)
			both := func(call map[string]any, state lastseen.CallState) {
				t.Helper()
				kit.WantCall(t, alice, call, state)
				kit.WantCall(t, bob, call, state)
			}
			call := one.Call(`{"from":"alice","to":"bob"}`)
			both(call, lastseen.Ringing)
			if test.accepts {
				two.Post(kit.CallPath(call)+"/accept", `{"user":"bob"}`)
				both(call, lastseen.Active)
			}
			backup := backUpCalls(t, url)
			two.Post(kit.CallPath(call)+"/end", `{"user":"`+test.user+`"}`)
			both(call, test.over)

			backup.restore(t)
			require.Len(t, one.Get(kit.CallsPath + "?user=alice")["calls"], 1, "it goes on")
			if test.accepts {
				_, welcome := one.Hello(`{"user":"alice"}`)
				require.Empty(t, welcome["calls"])
			} else {
				loseSignals(one, two)
			}
			kit.Await(t, func() bool { return len(one.Get(kit.CallsPath + "?user=bob")["calls"].([]any)) == 0 })
			both(two.Call(`{"from":"bob","to":"alice"}`), lastseen.Ringing) // and were not sent the end again
		})
	}
}

// TestCallWhoseLastVersionsAreLost: Redis has lost that a call was accepted, and what its app has said since. Clients
// are sent that it rings, and how it ends, although they were sent later versions.
func TestCallWhoseLastVersionsAreLost(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	one, two := apitest.NewRedisSocketServer(t, url), apitest.NewRedisSocketServer(t, url)
	alice, _ := one.Hello(`{"user":"alice"}`)
	call := one.Call(`{"from":"alice","to":"bob"}`)
	kit.WantCall(t, alice, call, lastseen.Ringing)
	backup := backUpCalls(t, url)
	two.Post(kit.CallPath(call)+"/accept", `{"user":"bob"}`)
	kit.WantCall(t, alice, call, lastseen.Active)
	for _, app := range []string{"1", "2"} {
		two.Post(kit.CallPath(call)+"/alive", `{"user":"bob","app":`+app+`}`)
		kit.WantCall(t, alice, call, lastseen.Active)
	}
	backup.restore(t)
	loseSignals(one, two)
	kit.WantCall(t, alice, call, lastseen.Ringing)
	require.Equal(t, "rejected", two.Post(kit.CallPath(call)+"/end", `{"user":"bob"}`)["state"])
	kit.WantCall(t, alice, call, lastseen.Rejected)
}

// TestActiveCallsAreNotReadAgain: connections do not read a call of which the manager knows that it goes on, and read
// it once the manager does not.
func TestActiveCallsAreNotReadAgain(t *testing.T) {
	t.Parallel()
	s := kit.FileStore(t)
	var reads atomic.Int64
	counted := &kit.HookedStore{Store: s, After: func(call string) error {
		if call == "ReadCalls" {
			reads.Add(1)
		}
		return nil
	}}
	manager := calls.New(s, slog.New(slog.DiscardHandler))
	manager.Timeout = func(string) time.Duration { return time.Hour } // as that of the call below
	manager.Active = func(string, string, string, time.Duration) bool { return true }
	w := apitest.NewServer(t, counted, apitest.WithStoreTime(s), apitest.WithConnections(t, s),
		func(c *api.Config) { c.Calls = manager }) // gets no signals
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { manager.Run(ctx) })
	timers := make(chan func(), 10)
	w.Config.Shared.SetTimers(func(_ time.Duration, f func()) *time.Timer {
		timers <- f
		return time.NewTimer(0)
	})
	w.Ring("c1", "alice", "bob")
	w.Act("c1", "bob", lastseen.Accept)
	alice, _ := w.Hello(`{"user":"alice"}`)
	waitWelcomed(t, w)
	late := <-timers
	kit.Await(t, func() bool { return manager.Rest("chat", "alice", "c1") > 0 })
	before := reads.Load()
	late()
	late = <-timers // planned again, at once
	require.Equal(t, before, reads.Load())
	cancel()
	running.Wait()
	w.Act("c1", "bob", lastseen.End)
	manager.Follow("chat", "alice", lastseen.Call{ID: "c1", From: "alice", To: "bob", State: lastseen.Ended})
	late()
	kit.WantCall(t, alice, map[string]any{"id": "c1"}, lastseen.Ended)
}
