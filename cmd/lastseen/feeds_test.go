package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

const aliceChanges = "/v1/namespaces/chat/changes?user=alice"

// TestFollowersContinueOnAnotherServer: a client whose server is killed continues on another one where it was. With the
// first minute of a feed on Redis comes a reset, which may be in between.
func TestFollowersContinueOnAnotherServer(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	first, second := start(t, "--store", redis), start(t, "--store", redis)
	stream := first.follow(t, aliceChanges, "")
	stream.until(t, `"status":"grey"`)
	second.post(t, alice+"/ping", "")
	stream.until(t, `"status":"green"`)
	first.kill()
	second.post(t, alice+"/leave", "")
	continued := second.follow(t, aliceChanges, stream.id)
	continued.until(t, `"left":true`)
	second.post(t, alice+"/ping", "")
	continued.until(t, `"status":"green"`)
}

// TestStopEndsStreams: a server that stops ends streams with advice when to connect again, answers long polls, and does
// not wait for either.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, args []string) {
		s := start(t, append(args, "--admin-listen", "127.0.0.1:0")...)
		stream := s.follow(t, aliceChanges, "")
		stream.until(t, `"status":"grey"`)
		began := stream.retry
		require.NotEmpty(t, began)
		answered := make(chan int, 1)
		go func() {
			response, err := http.Get(s.url + aliceChanges + "&wait=50s&cursor=" + stream.id)
			if err != nil {
				answered <- 0
				return
			}
			_ = response.Body.Close()
			answered <- response.StatusCode
		}()
		require.Eventually(t, func() bool {
			return strings.Contains(metricsOf(t, s), `lastseen_changes_streams{transport="long_poll"} 1`)
		}, time.Minute, 10*time.Millisecond)
		stream.retry = ""
		require.Zero(t, s.terminate(t))
		for name, _ := stream.next(); name != ""; name, _ = stream.next() {
			require.Equal(t, "changes", name)
		}
		require.NotEmpty(t, stream.retry, "the stream ended without advice")
		require.Equal(t, http.StatusOK, <-answered)
	})
}

// metricsOf returns what a service exports.
func metricsOf(t *testing.T, s *service) string {
	t.Helper()
	response, err := http.Get(s.admin + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

// TestReloadOfChanges: a namespace whose changes are switched off has no feed any more, also for clients that follow.
func TestReloadOfChanges(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, "namespaces: {chat: {changes: on}}")
	s := start(t, "--config", file)
	stream := s.follow(t, aliceChanges, "")
	stream.until(t, `"status":"grey"`)
	require.NoError(t, os.WriteFile(file, []byte("namespaces: {chat: {changes: off}}"), 0o600))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	for name, _ := stream.next(); name != ""; name, _ = stream.next() {
		require.NotEqual(t, "reset", name)
	}
	status, problem := s.call(t, http.MethodGet, aliceChanges, "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "feed_unavailable", problem["code"])
	require.NoError(t, os.WriteFile(file, []byte("namespaces: {chat: {changes: auto}}"), 0o600))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		status, _ = s.call(t, http.MethodGet, aliceChanges, "")
		return status == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
}

// TestMaxWatches: clients of a server follow at most so many users.
func TestMaxWatches(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-watches", "2")
	s.follow(t, aliceChanges+"&user=bob", "").until(t, "bob")
	status, problem := s.call(t, http.MethodGet, aliceChanges, "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "overloaded", problem["code"])
}

// TestAlwaysRecorded: with changes on, decays are recorded although nobody follows.
func TestAlwaysRecorded(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, args []string) {
		file := writeConfig(t, "green: 1s\nyellow: 2s\nping-interval: 500ms\nnamespaces: {chat: {changes: on}}")
		s := start(t, append(args, "--config", file, "--admin-listen", "127.0.0.1:0")...)
		require.Eventually(t, func() bool {
			s.post(t, alice+"/ping", "")
			return !strings.Contains(metricsOf(t, s), "lastseen_changes_decays_total 0\n")
		}, time.Minute, 3*time.Second, "pings that are further apart than yellow")
	})
}

func TestMetricsOfFeeds(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newReloadTest(t, "namespaces: {chat: {}}")
	r.metrics = registry
	f := r.newFeeds(7)
	f.sweep.Observe(time.Second)
	found := values(t, registry)
	for name, want := range map[string]float64{
		"namespaces": 0, "watchers": 0, "watches": 0, "watches_limit": 7, "entries": 0,
		"resets_total": 0, "watchers_behind_total": 0, "flaps_total": 0, "decays_total": 0, "begun_total": 0,
		"detection_lag_seconds": 1,
	} {
		require.Contains(t, found, "lastseen_changes_"+name)
		require.InDelta(t, want, found["lastseen_changes_"+name], 0, name)
	}
	require.Len(t, found, 11)

	m := newFeedMetrics()
	m.register(prometheus.NewRegistry(), feed.New(feed.Options{}), f.sweep, 1)
	registry = prometheus.NewRegistry()
	registry.MustRegister(m.resets, m.behind, m.flaps)
	m.Reset()
	m.Reset()
	m.Behind()
	m.Flap()
	require.Equal(t, map[string]float64{
		"lastseen_changes_resets_total": 2, "lastseen_changes_watchers_behind_total": 1, "lastseen_changes_flaps_total": 1,
	}, values(t, registry))
}

// TestReadmeFollows runs the README's command that follows changes, as written.
func TestReadmeFollows(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, args []string) {
		s := start(t, args...)
		out := startReadmeLine(t, s, "    curl -N ")
		events := readEvents(out)
		events.until(t, `"user":"bob","status":"grey"`)
		s.post(t, alice+"/ping", "")
		events.until(t, `"user":"alice","status":"green"`)
		s.post(t, strings.ReplaceAll(alice, "alice", "bob")+"/ping", "")
		events.until(t, `"user":"bob","status":"green"`)
	})
}
