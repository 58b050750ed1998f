package apitest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// NewFeeds returns a hub that follows the changes of a store, and advances their watermarks, until the test ends. It
// follows up to a number of users, or as many as the default if that is zero.
func NewFeeds(t *testing.T, s store.Store, settings api.Settings, max int) *feed.Hub {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	of := func(string) feed.Settings {
		return feed.Settings{Thresholds: settings.Thresholds, Mode: settings.Changes}
	}
	watermarks := jobs.NewWatermarks(s, func() []string { return nil }, of, logger)
	hub := feed.New(feed.Options{Store: s, Settings: of, Recorded: watermarks.Add, Logger: logger, MaxWatches: max})
	kit.Background(t, hub.Run, watermarks.Run)
	return hub
}

// Polled polls from a cursor on, waiting for changes, until users have the wanted statuses. It returns all users in the
// responses, and the last cursor.
func (w *Server) Polled(path, cursor string, want map[string]string) (found []map[string]any, last string) {
	w.T.Helper()
	know := map[string]string{}
	for !maps.Equal(know, want) {
		r := w.Get(path + "&wait=30s&cursor=" + cursor)
		require.Equal(w.T, false, r["reset"])
		require.NotEmpty(w.T, r["users"], "after %v, wanted %v", know, want)
		for _, u := range r["users"].([]any) {
			u := u.(map[string]any)
			know[u["user"].(string)] = u["status"].(string)
			found = append(found, u)
		}
		cursor = kit.CursorOf(r)
	}
	return found, cursor
}

// Follow opens a stream of events; headers are "Name: value". The test has to call Closed when it is done with it.
func (w *Server) Follow(method, path, body string, headers ...string) *kit.EventReader {
	w.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, method, w.URL+"/v1/namespaces"+path, strings.NewReader(body))
	require.NoError(w.T, err)
	kit.AddHeaders(request.Header, append(headers, kit.AcceptEvents))
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.T, err)
	w.T.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
	})
	require.Equal(w.T, http.StatusOK, response.StatusCode)
	require.Equal(w.T, transport.MediaType, response.Header.Get("Content-Type"))
	r := kit.NewEventReader(w.T, response.Body)
	r.Closed = cancel
	return r
}

// FollowEach polls the changes of the namespaces first..end-1, and requires that they are not refused.
func (w *Server) FollowEach(first, end int, headers ...string) {
	w.T.Helper()
	for n := first; n < end; n++ {
		w.Get(fmt.Sprintf("/room-%d/changes?user=bob", n), headers...)
	}
}
