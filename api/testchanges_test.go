package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/stream"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// followed returns a hub that follows the changes of a store, which are swept, until the test ends.
func followed(t *testing.T, s store.Store, settings Settings) *feed.Hub {
	t.Helper()
	return followedUpTo(t, s, settings, 0)
}

// followedUpTo is followed with a maximum of users.
func followedUpTo(t *testing.T, s store.Store, settings Settings, max int) *feed.Hub {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	of := func(string) feed.Settings {
		return feed.Settings{Thresholds: settings.Thresholds, Mode: settings.Changes}
	}
	sweep := jobs.NewSweep(s, func() []string { return nil }, of, logger)
	hub := feed.New(feed.Options{Store: s, Settings: of, Recorded: sweep.Add, Logger: logger, MaxWatches: max})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	running.Go(func() { sweep.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return hub
}

// live makes the time of a server that of its store, for which newTestServer has another one.
func live(s store.Store) func(*Config) { return func(c *Config) { c.Store = s } }

// newLiveServer serves a store whose changes are followed.
func newLiveServer(t *testing.T, changes ...func(*Config)) *testServer {
	t.Helper()
	s := fileStore(t)
	return newTestServer(t, s, append([]func(*Config){live(s)}, changes...)...)
}

// cursorOf returns the cursor in a response.
func cursorOf(response map[string]any) string { return response["cursor"].(string) }

// statuses returns the users in a response with their statuses, such as "alice green".
func statuses(response map[string]any) []string {
	found := []string{}
	for _, u := range response["users"].([]any) {
		u := u.(map[string]any)
		found = append(found, u["user"].(string)+" "+u["status"].(string))
	}
	return found
}

// polled polls from a cursor on, waiting for changes, until users have the wanted statuses. It returns all users in the
// responses, and the last cursor.
func (w *testServer) polled(path, cursor string, want map[string]string) (found []map[string]any, last string) {
	w.t.Helper()
	know := map[string]string{}
	for !maps.Equal(know, want) {
		r := w.get(path + "&wait=30s&cursor=" + cursor)
		require.Equal(w.t, false, r["reset"])
		require.NotEmpty(w.t, r["users"], "after %v, wanted %v", know, want)
		for _, u := range r["users"].([]any) {
			u := u.(map[string]any)
			know[u["user"].(string)] = u["status"].(string)
			found = append(found, u)
		}
		cursor = cursorOf(r)
	}
	return found, cursor
}

// sentEvent is an event that a client received.
type sentEvent struct {
	name, id string
	data     map[string]any
}

// eventReader reads events as a browser does.
type eventReader struct {
	t      *testing.T
	lines  *bufio.Scanner
	retry  []string // the values of retry so far
	closed func()
}

// follow opens a stream of events; headers are "Name: value". The test has to call closed when it is done with it.
func (w *testServer) follow(method, path, body string, headers ...string) *eventReader {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, method, w.url+"/v1/namespaces"+path, strings.NewReader(body))
	require.NoError(w.t, err)
	request.Header.Set("Accept", stream.MediaType)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
	})
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	require.Equal(w.t, stream.MediaType, response.Header.Get("Content-Type"))
	r := newEventReader(w.t, response.Body)
	r.closed = cancel
	return r
}

func newEventReader(t *testing.T, from io.Reader) *eventReader {
	t.Helper()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	return &eventReader{t: t, lines: lines}
}

// next returns the next event; false at the end.
func (r *eventReader) next() (e sentEvent, ok bool) {
	r.t.Helper()
	for r.lines.Scan() {
		field, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch field {
		case "retry":
			r.retry = append(r.retry, value)
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			require.NoError(r.t, json.Unmarshal([]byte(value), &e.data), value)
		case "":
			if e.name != "" {
				return e, true
			}
		default:
			r.t.Errorf("unknown field %q", field)
		}
	}
	return e, false
}

// changes returns the next event that is not a tick.
func (r *eventReader) changes() sentEvent {
	r.t.Helper()
	for {
		e, ok := r.next()
		require.True(r.t, ok, "the stream has ended")
		if e.name != eventTick {
			return e
		}
	}
}

// Bounds for what happens soon.
const (
	eventually = 30 * time.Second
	tick       = 5 * time.Millisecond
)

func placesOf(t *testing.T, cursor string) []store.Place {
	t.Helper()
	places, err := openChangesCursor("chat", cursor)
	require.NoError(t, err)
	return places
}
