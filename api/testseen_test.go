package api

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// seenWorld is a namespace in which users are visible to contacts, with two servers on one store, in a bubble whose
// clock advances only when every goroutine waits.
type seenWorld struct {
	t       *testing.T
	store   *kit.ContactStore
	servers []*server
	logger  *slog.Logger
}

// usualSettings are those of most tests.
func usualSettings() Settings {
	return Settings{
		Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
		PingInterval: 30 * time.Second,
	}
}

// inSeenWorld runs a test in a bubble.
func inSeenWorld(t *testing.T, test func(*testing.T, *seenWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &seenWorld{t: t, store: &kit.ContactStore{Store: kit.FileStore(t)}, logger: slog.New(slog.DiscardHandler)}
		for range 2 {
			w.serve()
		}
		sweep := jobs.NewSweep(w.store, func() []string { return []string{"chat"} }, w.feedSettings, w.logger)
		kit.Background(t, sweep.Run)
		synctest.Wait()
		test(t, w)
	})
}

func (w *seenWorld) feedSettings(string) feed.Settings {
	return feed.Settings{Thresholds: usualSettings().Thresholds, Mode: feed.On}
}

func (w *seenWorld) serve() {
	steady := func() float64 { return 0.5 }
	hub := feed.New(feed.Options{Store: w.store, Settings: w.feedSettings, Logger: w.logger, Random: steady})
	config := Config{Store: w.store, Logger: w.logger, Random: steady, Feeds: hub, Settings: usualSettings()}
	config.Settings.Visibility = VisibleToContacts
	config.Shared = NewShared(config)
	New(config)
	w.servers = append(w.servers, config.Shared.newest.Load())
	kit.Background(w.t, hub.Run, config.Shared.Listen)
}

// ping records that users are here now; leave that they went away.
func (w *seenWorld) ping(users ...string) { w.record(w.store.Ping, users) }

func (w *seenWorld) leave(users ...string) { w.record(w.store.Leave, users) }

func (w *seenWorld) record(
	record func(context.Context, string, []store.Sighting) ([]lastseen.State, error), users []string,
) {
	w.t.Helper()
	for _, user := range users {
		_, err := record(w.t.Context(), "chat", []store.Sighting{{User: user, At: lastseen.InstantOf(time.Now())}})
		require.NoError(w.t, err)
	}
}

// know sets the contacts of a user, and returns when all servers have read that in the feed.
func (w *seenWorld) know(owner string, contacts ...string) {
	w.t.Helper()
	w.set(owner, contacts...)
	w.arrive()
}

// arrive waits until all servers have read what is in the feed now.
func (w *seenWorld) arrive() {
	time.Sleep(300 * time.Millisecond)
	synctest.Wait()
}

// set is know without waiting.
func (w *seenWorld) set(owner string, contacts ...string) {
	w.t.Helper()
	require.NoError(w.t, w.store.SetContacts(w.t.Context(), "chat", owner, contacts))
}

func (w *seenWorld) forget(user string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Forget(w.t.Context(), "chat", user))
	w.arrive()
}

func (w *seenWorld) sees(viewer, user string) bool {
	w.t.Helper()
	are, err := w.store.Store.AreContacts(w.t.Context(), "chat", []store.ContactPair{{Owner: user, Contact: viewer}})
	require.NoError(w.t, err)
	return are[0] || user == viewer
}

// vic returns the caller with the token of the user vic.
func vic() *auth.Caller { return &auth.Caller{Kind: auth.ByToken, Name: "vic", Issuer: "issuer"} }

// watch begins to follow changes as the user vic, until the test ends.
func (w *seenWorld) watch(k int, q feed.Query) changesWatcher {
	w.t.Helper()
	watcher, err := w.servers[k].openWatcher(w.t.Context(), "chat", "", vic(), q, free)
	require.NoError(w.t, err)
	w.t.Cleanup(watcher.Close)
	return watcher
}

func free() error { return nil }

// poll returns what a watcher has now.
func (w *seenWorld) poll(watcher changesWatcher) feed.Batch {
	w.t.Helper()
	b, err := watcher.Poll(w.t.Context(), 1000)
	require.NoError(w.t, err)
	require.Len(w.t, b.Places, 1)
	return b
}

// next returns what a watcher has within a time, as text: "" for nothing.
func (w *seenWorld) next(watcher changesWatcher, within time.Duration) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	b, err := watcher.Next(ctx, 1000)
	if err != nil {
		require.ErrorIs(w.t, err, context.DeadlineExceeded)
		return ""
	}
	return told(b)
}

// told returns what a batch says: "reset: alice green, bob grey left".
func told(b feed.Batch) string {
	texts := make([]string, len(b.Users))
	for k, u := range b.Users {
		texts[k] = u.User + " " + shownAs(u.Published)
	}
	text := strings.Join(texts, ", ")
	if b.Snapshot {
		return "snapshot: " + text
	}
	if b.Reset {
		return "reset: " + text
	}
	return text
}

func shownAs(p store.Published) string {
	text := string(p.Status)
	if p.Left {
		text += " left"
	}
	if p.Said.Availability != "" {
		text += " " + string(p.Said.Availability)
	}
	if p == (store.Published{Status: lastseen.Grey}) {
		return "never"
	}
	return text
}

// settle waits until nothing is to be told, and returns what was.
func (w *seenWorld) settle(watcher changesWatcher) (told []string) {
	w.t.Helper()
	for {
		text := w.next(watcher, 3*time.Second)
		if text == "" {
			return told
		}
		told = append(told, text)
	}
}

// ticks reports whether the watcher says within some seconds that it has told everything.
func (w *seenWorld) ticks(watcher changesWatcher) (b feed.Batch, ok bool) {
	w.t.Helper()
	for range 10 {
		if b, ok = watcher.Tick(); ok {
			return b, true
		}
		if w.next(watcher, time.Second) != "" {
			return b, false
		}
	}
	return b, false
}

var errSome = errors.New("some error")

// list returns what vic's list has: contacts who have vic.
func (w *seenWorld) list() []string {
	w.t.Helper()
	all, err := w.store.Store.ListContacts(w.t.Context(), "chat", "vic", "", store.MaxContacts)
	require.NoError(w.t, err)
	return slices.DeleteFunc(all, func(user string) bool { return !w.sees("vic", user) })
}
