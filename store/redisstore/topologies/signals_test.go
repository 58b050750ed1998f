package topologies

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
	"github.com/lastseen/lastseen/store/storetest/servers"
)

func TestSignals(t *testing.T) {
	t.Parallel()
	servers.RunSignals(t, stores.Pairs(redistest.Start(t), 1))
}

func TestSignalsOnSentinel(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	servers.RunSignals(t, stores.Pairs(redistest.StartSentinel(t).URL(), 1))
}

// about returns a signal with some data.
func about(data string) store.Signal {
	return store.Signal{Kind: "test", Namespace: "chat", User: "alice", Data: []byte(data)}
}

// send sends a signal that all others must get, too.
func send(t *testing.T, s store.Store, data string) {
	t.Helper()
	require.NoError(t, s.Signal(context.Background(), about(data)))
}

// TestSignalsOfOthers: databases and prefixes are apart, and what is not a signal is ignored and counted.
func TestSignalsOfOthers(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.StartProcess(t).URL()
	s := stores.New(t, redisstore.Options{URL: url})
	signals := servers.Listen(t, s)
	send(t, stores.New(t, redisstore.Options{URL: url + "/1"}), "another database")
	send(t, stores.New(t, redisstore.Options{URL: url, Prefix: "other:"}), "another prefix")
	client := stores.NewClient(t, url)
	garbage := []string{
		"", " ", "garbage", "a b c", "a k chat 5 alice", "a k chat -1 alice", "a k chat 6 alice",
		"a k chat 99999 alice", "a K chat 5 alice", "a  chat 5 alice", "a abcdefghijklmnopq chat 5 alice", "a k .chat 5 alice", "a k  5 alice",
		"a k chat 5 al\x00ce", "a k chat 2 \xff\xfe", strings.Repeat("x", 1<<20),
		"a k chat 5 alice" + strings.Repeat("x", store.MaxSignalData+1),
	}
	for _, message := range garbage {
		require.NoError(t, client.Publish(ctx, "presence::signals", message).Err())
	}
	require.NoError(t, client.Publish(ctx, "presence::signals", "other - - 0 check").Err(), "of another server")
	send(t, stores.New(t, redisstore.Options{URL: url}), "ours")
	got := signals.Next(t)
	require.Equal(t, store.Signal{Kind: "k", Namespace: "chat", User: "alice"}, got, "the fifth is one")
	require.Equal(t, about("ours"), signals.Next(t))
	require.Empty(t, signals.Signals)
	require.Equal(t, redisclient.SignalStats{
		Listening: true, Received: 2, Ignored: int64(len(garbage) - 1), Interrupted: 1,
	}, s.SignalStats())
}

// TestSignalsAfterAnInterruption: a listener subscribes again, and learns that it may have lost signals.
func TestSignalsAfterAnInterruption(t *testing.T) {
	t.Parallel()
	ctx, server := context.Background(), redistest.StartProcess(t)
	proxy := stores.StartProxy(t, server.Addr)
	for name, interrupt := range map[string]func(*testing.T, *redisstore.Store){
		"killed": func(t *testing.T, _ *redisstore.Store) {
			require.NoError(t, server.Client(t).ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
		},
		"silent": func(t *testing.T, s *redisstore.Store) { // no error shows it
			heal := stores.Spoil(t, proxy, `{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
			stores.Eventually(t, func() bool { return !s.SignalStats().Listening })
			heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stores.New(t, redisstore.Options{URL: "redis://" + proxy.Listen, Timeout: 250 * time.Millisecond})
			s.CheckEvery = 50 * time.Millisecond
			other := stores.New(t, redisstore.Options{URL: server.URL()})
			signals := servers.Listen(t, s)
			send(t, other, "before")
			require.Equal(t, about("before"), signals.Next(t))
			interrupt(t, s)
			require.Zero(t, signals.Next(t))
			send(t, other, "after")
			require.Equal(t, about("after"), signals.Next(t))
			require.EqualValues(t, 2, s.SignalStats().Interrupted)
		})
	}
}

// TestSignalsAfterAFailover: they arrive by themselves once a replica took over.
func TestSignalsAfterAFailover(t *testing.T) {
	t.Parallel()
	watched := redistest.StartSentinel(t)
	o := redisstore.Options{URL: watched.URL(), Timeout: 250 * time.Millisecond}
	s, other := stores.New(t, o), stores.New(t, o)
	s.CheckEvery = 50 * time.Millisecond
	signals := servers.Listen(t, s)
	watched.Nodes[0].Freeze(t)
	t.Cleanup(func() { watched.Nodes[0].Thaw(t) })
	require.Zero(t, signals.Next(t))
	stores.Eventually(t, func() bool { return other.Signal(context.Background(), about("after")) == nil })
	require.Equal(t, about("after"), signals.Next(t))
}

// TestSignalsWithoutRights: they reach listeners of the same process, and the log says once what is missing.
func TestSignalsWithoutRights(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"-publish", "-subscribe", "resetchannels"} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			ctx, url := context.Background(), redistest.StartProcess(t).URL()
			client := stores.NewClient(t, url)
			stores.Restrict(t, client)
			require.NoError(t, client.Do(ctx, "ACL", "SETUSER", "app", missing).Err())
			s, log := stores.NewLogged(t, redisstore.Options{URL: stores.AsApp(url)})
			signals := servers.Listen(t, s)
			stores.Eventually(t, func() bool { // one that is sent while a loss waits to be told is part of it
				err := s.Signal(ctx, about("here"))
				got := <-signals.Signals
				return err != nil && assert.ObjectsAreEqual(about("here"), got)
			})
			require.ErrorIs(t, s.Signal(ctx, about("here")), store.ErrNoSignals)
			require.Equal(t, 1, log.Count("&presence::signals*"))
			stores.Eventually(t, func() bool { return !s.SignalStats().Listening })
			everythingButSignals(t, s)
		})
	}
}

// everythingButSignals checks that missing rights for signals harm nothing else.
func everythingButSignals(t *testing.T, s *redisstore.Store) {
	t.Helper()
	require.NoError(t, s.Ready(context.Background()))
	for name, call := range stores.AllCalls(s, "chat") {
		require.NoError(t, call(), name)
	}
}
