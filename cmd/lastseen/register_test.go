package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func fmtAny(v any) string { return fmt.Sprint(v) }

// reluctant is a store that registers nothing for a while.
type reluctant struct {
	store.Store
	errs       []error
	registered [][]string
}

func (r *reluctant) Register(_ context.Context, names []string) error {
	r.registered = append(r.registered, names)
	if len(r.errs) == 0 {
		return nil
	}
	err := r.errs[0]
	r.errs = r.errs[1:]
	return err
}

// TestRegistrarGoesOn: it tries again soon after a failure, checks now and then after a success, and looks at once at
// names that changed.
func TestRegistrarGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	away, other := store.ErrUnavailable, fmt.Errorf("%w: chat", store.ErrMismatch)
	s := &reluctant{errs: []error{away, away, nil, other, other, nil, away, away, away, away, away, away, nil}}
	names := []string{"a"}
	var paused []time.Duration
	var log bytes.Buffer
	r := &registrar{
		store: s, names: func() []string { return names }, changed: changed,
		logger: slog.New(slog.NewTextHandler(&log, nil)),
		pause: func(resting context.Context, d time.Duration) {
			paused = append(paused, d)
			switch len(paused) {
			case 3:
				names = []string{"a", "b"}
				changed <- struct{}{}
				<-resting.Done()
			case 14:
				cancel()
			}
		},
	}
	r.first(ctx)
	require.Equal(t, [][]string{{"a"}}, s.registered)
	r.run(ctx)
	require.Len(t, s.registered, 14)
	require.Equal(t, [][]string{{"a"}, {"a"}, {"a"}, {"a", "b"}}, s.registered[:4])
	const soon, often = time.Second, 10 * time.Second
	require.Equal(t, []time.Duration{
		soon, 2 * soon, often, often, often, often, soon, 2 * soon, 4 * soon, 8 * soon, often, often, often, often,
	}, paused)
	for text, times := range map[string]int{
		"trying again": 2, "are registered": 2, "cannot be served": 1, "can be served again": 1,
	} {
		require.Equal(t, times, strings.Count(log.String(), text), "%s in %s", text, &log)
	}
}

// TestNamespacesComeBack: the configured namespaces exist again after Redis lost everything.
func TestNamespacesComeBack(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	s := start(t, "--store", server.URL(), "--redis-timeout", "30s", "--redis-dial-timeout", "30s",
		"--config", writeConfig(t, "namespaces: {chat: , game: }"))
	listed := func() bool {
		_, answer := s.call(t, "GET", "/v1/namespaces", "")
		return strings.Contains(fmtAny(answer), "namespace:chat") && strings.Contains(fmtAny(answer), "namespace:game")
	}
	require.True(t, listed())
	require.NoError(t, server.Client(t).FlushAll(context.Background()).Err())
	require.False(t, listed())
	require.Eventually(t, listed, time.Minute, 50*time.Millisecond)
}

func TestConfiguredNamespacesAreListedAtStart(t *testing.T) {
	config := writeConfig(t, "namespaces:\n  chat:\n  game: {green: 90s}\n")
	eachStore(t, func(t *testing.T, args []string) {
		s := start(t, append(args, "--config", config)...)
		require.Equal(t, map[string]any{
			"namespaces": []any{
				map[string]any{"namespace": "chat", "last_ping": nil},
				map[string]any{"namespace": "game", "last_ping": nil},
			},
			"next_cursor": nil,
		}, s.get(t, "/v1/namespaces"))
		require.EqualValues(t, 90_000, s.get(t, "/v1/namespaces/game")["green_ms"])
		require.EqualValues(t, 60_000, s.get(t, "/v1/namespaces/chat")["green_ms"])
	})
}

// TestNamespacesAreRegisteredOnceRedisIsThere: the service starts without it.
func TestNamespacesAreRegisteredOnceRedisIsThere(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	server.Stop(t)
	s := start(t, "--store", server.URL(), "--config", writeConfig(t, "namespaces: {chat: }"))
	require.Eventually(t, func() bool {
		return strings.Contains(s.log.String(), "cannot register the configured namespaces yet")
	}, 30*time.Second, time.Millisecond)
	server.Start(t)
	require.Eventually(t, func() bool {
		status, answer := s.call(t, "GET", "/v1/namespaces", "")
		return status == 200 && fmtAny(answer) == "map[namespaces:[map[last_ping:<nil> namespace:chat]] next_cursor:<nil>]"
	}, 60*time.Second, 50*time.Millisecond)
}

// TestTutorialsSetIsServed runs the example of docs/from-the-redis-tutorial.md as it stands there, but for
// Redis' address.
func TestTutorialsSetIsServed(t *testing.T) {
	url := redistest.Start(t)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	ctx := context.Background()
	now := time.Now().Unix()
	require.NoError(t, client.ZAdd(ctx, "presence", redis.Z{Score: float64(now - 10), Member: "alice"}, redis.Z{Score: 100123, Member: "bob"}).Err())

	file := writeConfig(t, tutorialExample(t, 0, url))
	s := start(t, "--config", file, "--redis-timeout", "30s", "--redis-dial-timeout", "30s")
	require.Equal(t, "green", s.get(t, alice)["status"])
	require.Equal(t, "1970-01-02T03:48:43.000Z", s.get(t, "/v1/namespaces/chat/users/bob")["last_seen"])
	s.post(t, "/v1/namespaces/chat/users/carol/ping", `{"at":100200.5}`)
	score, err := client.ZScore(ctx, "presence", "carol").Result()
	require.NoError(t, err)
	require.InDelta(t, 100200.5, score, 0)
	require.Contains(t, fmtAny(s.get(t, "/v1/namespaces")), "chat")

	// The second example has only the unit, for all namespaces.
	require.NoError(t, client.ZAdd(ctx, "presence:room", redis.Z{Score: float64(now - 10), Member: "dave"}).Err())
	other := writeConfig(t, tutorialExample(t, 1, url))
	s = start(t, "--store", url, "--config", other, "--redis-timeout", "30s", "--redis-dial-timeout", "30s")
	require.Equal(t, "green", s.get(t, "/v1/namespaces/room/users/dave")["status"])
}
