package audience

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// fixture is a namespace in which users are visible to contacts, with two servers on one store, in a bubble whose
// clock advances only when every goroutine waits.
type fixture struct {
	t       *testing.T
	store   *kit.ContactStore
	servers []Options
	counted int // contacts that are followed, of 5,000
	logger  *slog.Logger
	woken   sync.Map // of watchers: a channel
}

// inFixture runs a test in a bubble.
func inFixture(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{t: t, store: &kit.ContactStore{Store: kit.FileStore(t)}, logger: slog.New(slog.DiscardHandler)}
		for range 2 {
			w.serve()
		}
		watermarks := jobs.NewWatermarks(w.store, func() []string { return []string{"chat"} }, w.feedSettings, w.logger)
		kit.Background(t, watermarks.Run)
		synctest.Wait()
		test(t, w)
	})
}

// thresholds are those of the namespace.
func thresholds() lastseen.Thresholds {
	return lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}
}

func (w *fixture) feedSettings(string) feed.Settings {
	return feed.Settings{Thresholds: thresholds(), Mode: feed.On}
}

func (w *fixture) serve() {
	steady := func() float64 { return 0.5 }
	hub := feed.New(feed.Options{Store: w.store, Settings: w.feedSettings, Logger: w.logger, Random: steady})
	w.servers = append(w.servers, Options{Store: w.store, Feeds: hub, Shared: NewShared()})
	kit.Background(w.t, hub.Run)
}

// ping records that users are here now; leave that they went away.
func (w *fixture) ping(users ...string) { w.record(w.store.Ping, users) }

func (w *fixture) leave(users ...string) { w.record(w.store.Leave, users) }

func (w *fixture) record(
	record func(context.Context, string, []store.PresenceEvent) ([]lastseen.State, error), users []string,
) {
	w.t.Helper()
	for _, user := range users {
		_, err := record(w.t.Context(), "chat", []store.PresenceEvent{{User: user, At: lastseen.InstantOf(time.Now())}})
		require.NoError(w.t, err)
	}
}

// know sets the contacts of a user, and returns when all servers have read that in the feed.
func (w *fixture) know(owner string, contacts ...string) {
	w.t.Helper()
	w.set(owner, contacts...)
	w.arrive()
}

// arrive waits until all servers have read what is in the feed now.
func (w *fixture) arrive() {
	time.Sleep(300 * time.Millisecond)
	synctest.Wait()
}

// set is know without waiting.
func (w *fixture) set(owner string, contacts ...string) {
	w.t.Helper()
	require.NoError(w.t, w.store.SetContacts(w.t.Context(), "chat", owner, contacts))
}

func (w *fixture) forget(user string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Forget(w.t.Context(), "chat", user))
	w.arrive()
}

func (w *fixture) sees(viewer, user string) bool {
	w.t.Helper()
	are, err := w.store.Store.AreContacts(w.t.Context(), "chat", []store.ContactPair{{Owner: user, Contact: viewer}})
	require.NoError(w.t, err)
	return are[0] || user == viewer
}

// vic returns the viewer that clients of the user vic are; service one that sees everyone.
func vic() Viewer     { return Viewer{Restricted: true, User: "vic"} }
func service() Viewer { return Viewer{} }

// open begins to follow changes on a server.
func (w *fixture) open(k int, owner string, v Viewer, q feed.Query, charge func() error) (*Watcher, error) {
	w.t.Helper()
	counted := 0
	count := func(contacts int) error {
		if w.counted+contacts-counted > store.MaxWatched && contacts > counted {
			return errSome
		}
		w.counted, counted = w.counted+contacts-counted, contacts
		return nil
	}
	woken := make(chan struct{}, 1)
	q.Wake = func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	watcher, err := w.servers[k].Watch(w.t.Context(), Query{
		Query: q, Namespace: "chat", Viewer: v, Owner: owner, Charge: charge, Count: count,
	})
	w.woken.Store(watcher, woken)
	return watcher, err
}

// await waits for the next batch of a watcher.
func (w *fixture) await(ctx context.Context, watcher *Watcher, limit int) (feed.Batch, error) {
	woken, _ := w.woken.Load(watcher)
	for {
		b, ok, again, err := watcher.Next(ctx, limit)
		if ok || err != nil {
			return b, err
		}
		select {
		case <-woken.(chan struct{}): //nolint:forcetypeassert // it has nothing else
		case <-time.After(again):
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
}

// watch begins to follow changes as the user vic, until the test ends.
func (w *fixture) watch(k int, q feed.Query) *Watcher {
	w.t.Helper()
	watcher, err := w.open(k, "", vic(), q, free)
	require.NoError(w.t, err)
	w.t.Cleanup(watcher.Close)
	return watcher
}

func free() error { return nil }

// poll returns what a watcher has now.
func (w *fixture) poll(watcher *Watcher) feed.Batch {
	w.t.Helper()
	b, err := watcher.Poll(w.t.Context(), 1000)
	require.NoError(w.t, err)
	require.Len(w.t, b.Positions, 1)
	return b
}

// next returns what a watcher has within a time, as text: "" for nothing.
func (w *fixture) next(watcher *Watcher, within time.Duration) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	b, err := w.await(ctx, watcher, 1000)
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
	if p.Availability.Availability != "" {
		text += " " + string(p.Availability.Availability)
	}
	if p == (store.Published{Status: lastseen.Grey}) {
		return "never"
	}
	return text
}

// settle waits until nothing is to be told, and returns what was.
func (w *fixture) settle(watcher *Watcher) (told []string) {
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
func (w *fixture) ticks(watcher *Watcher) (b feed.Batch, ok bool) {
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
func (w *fixture) list() []string {
	w.t.Helper()
	all, err := w.store.Store.ListContacts(w.t.Context(), "chat", "vic", "", store.MaxContacts)
	require.NoError(w.t, err)
	return slices.DeleteFunc(all, func(user string) bool { return !w.sees("vic", user) })
}
