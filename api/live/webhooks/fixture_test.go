package webhooks

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/memstore"
)

// fixture is a manager with a receiver and a feed that a test controls. They are fakes, since retries take hours of the
// clock, which is that of a bubble: there is no network in it.
type fixture struct {
	notes   // real ones
	t       *testing.T
	webhook *Webhook
	log     testenv.Log

	mu       sync.Mutex
	reply    reply
	requests []received
	batches  []feed.Batch // that the next watcher has
	backlog  []feed.Batch // that the next watcher begins with
	wake     func()
	watchers int
	closed   int
	position int              // of the last batch
	delayed  bool             // a watcher without batches waits for its turn; otherwise it has read everything
	paging   bool             // a snapshot has more pages
	feedLost bool             // what is after any position is not known
	after    []store.Position // of the last watcher
	names    []string         // the namespaces
	lost     bool             // another server has the lease
	leaseErr error            // of asking for it
	noteErr  error            // of the next note
	restored []string         // versions of notes that were set before the store went back
	watchErr error
	observed observed
}

type notes interface{ store.Notes }

// received is a request that the receiver got.
type received struct {
	id, body string
	at       time.Time
}

// observed counts what an observer is told.
type observed struct {
	tried          map[Result]int
	dropped, reset int
	lags           []time.Duration
}

func (f *fixture) Tried(_ string, r Result)    { f.locked(func() { f.observed.tried[r]++ }) }
func (f *fixture) Dropped(_ string, users int) { f.locked(func() { f.observed.dropped += users }) }
func (f *fixture) Reset(string)                { f.locked(func() { f.observed.reset++ }) }
func (f *fixture) Lag(_ string, d time.Duration) {
	f.locked(func() { f.observed.lags = append(f.observed.lags, d) })
}

func (f *fixture) Now(context.Context) (lastseen.Instant, error) {
	return lastseen.InstantOf(time.Now()), nil
}

func (f *fixture) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fixture) Lease(context.Context, string, time.Duration) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.lost && f.leaseErr == nil, f.leaseErr
}

// Note implements [store.Notes].
func (f *fixture) Note(ctx context.Context, name, key string) (store.Note, error) {
	n, err := f.notes.Note(ctx, name, key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.Restored = slices.Contains(f.restored, n.Version); n.Restored {
		n.Version += "@"
	}
	return n, err
}

// restore has the store go back to the notes that it has now.
func (f *fixture) restore(t *testing.T) {
	t.Helper()
	for _, key := range []string{"chat", ownNote} {
		n, err := f.notes.Note(t.Context(), "webhook-app", key)
		require.NoError(t, err)
		f.locked(func() { f.restored = append(f.restored, n.Version) })
	}
}

func (f *fixture) SetNote(ctx context.Context, name, key, old string, n store.Note) (bool, error) {
	f.mu.Lock()
	err := f.noteErr
	f.noteErr = nil
	restored := slices.Contains(f.restored, old)
	f.mu.Unlock()
	if err != nil || restored {
		return false, err
	}
	old = strings.TrimSuffix(old, "@")
	return f.notes.SetNote(ctx, name, key, old, n)
}

func (f *fixture) Namespaces(context.Context, string, int) ([]store.NamespaceInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	infos := []store.NamespaceInfo{}
	for _, name := range f.names {
		infos = append(infos, store.NamespaceInfo{Name: name})
	}
	return infos, nil
}

// RoundTrip implements [http.RoundTripper].
func (f *fixture) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	require.NoError(f.t, err)
	f.mu.Lock()
	f.requests = append(f.requests, received{r.Header.Get("webhook-id"), string(body), time.Now()})
	reply := f.reply
	f.mu.Unlock()
	code, header, err := reply(r, string(body))
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader("shown to nobody")),
	}, nil
}

// Next implements [Watcher].
func (f *fixture) Next(ctx context.Context, _ int) (b feed.Batch, ok bool, again time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.batches) == 0 {
		if !f.delayed {
			b.Positions = []store.Position{store.Position(strconv.Itoa(f.position))}
		}
		return b, false, time.Hour, ctx.Err()
	}
	b, f.batches = f.batches[0], f.batches[1:]
	b.More = b.More || len(f.batches) > 0
	return b, true, time.Hour, nil
}

// Close implements [Watcher].
func (f *fixture) Close() { f.locked(func() { f.closed++ }) }

func (f *fixture) watch(_ context.Context, namespace string, q feed.Query) (Watcher, error) {
	require.Contains(f.t, namespace, "chat")
	require.True(f.t, q.Everyone)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchErr != nil {
		return nil, f.watchErr
	}
	f.watchers++
	f.wake, f.after = q.Wake, q.After
	f.batches = nil
	switch {
	case q.After == nil:
		zoe := update("zoe", "", lastseen.Green)
		f.batches = []feed.Batch{{Snapshot: true, Users: []feed.Update{zoe}, Positions: f.next(), More: f.paging}}
	case f.backlog != nil:
		f.batches, f.backlog = f.backlog, nil
	case f.feedLost:
		f.batches = []feed.Batch{{Reset: true, Positions: f.next()}}
	}
	return f, nil
}

// lose has the feed lose what is after any position, and the watcher learn that after some batches.
func (f *fixture) lose(batches ...feed.Batch) {
	f.locked(func() { f.feedLost = true })
	f.send(append(batches, feed.Batch{Reset: true})...)
}

// away has another server hold the lease for some time.
func (f *fixture) away(d time.Duration) {
	f.leave()
	time.Sleep(d)
	f.back()
}

// leave has another server hold the lease, and waits until the manager knows; back ends that.
func (f *fixture) leave() { f.setLost(true) }
func (f *fixture) back()  { f.setLost(false) }

func (f *fixture) setLost(lost bool) {
	f.locked(func() { f.lost = lost })
	time.Sleep(lookEvery + time.Millisecond)
	synctest.Wait()
}

// next returns the positions of the next batch.
func (f *fixture) next() []store.Position {
	f.position++
	return []store.Position{store.Position(strconv.Itoa(f.position))}
}

// send has the feed changed.
func (f *fixture) send(batches ...feed.Batch) {
	synctest.Wait() // a watcher that begins at this instant has begun
	f.locked(func() {
		for _, b := range batches {
			b.Positions = f.next()
			f.batches = append(f.batches, b)
		}
	})
	f.wake()
}

// got returns what the receiver got since the last call, without the namespace's name.
func (f *fixture) got() (types []string) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		p := parse(f.t, []byte(r.body))
		for _, u := range p.Data.Users {
			p.Type += " " + u["user"].(string) //nolint:forcetypeassert // a string
		}
		types = append(types, strings.TrimPrefix(p.Type, "presence."))
	}
	f.requests = nil
	return types
}

// reply is what the receiver answers to a request: a status and headers.
type reply func(r *http.Request, body string) (status int, header http.Header, err error)

// status is a reply with a status, and headers.
func status(code int, header ...string) reply {
	h := http.Header{}
	for k := 0; k < len(header); k += 2 {
		h.Set(header[k], header[k+1])
	}
	return func(*http.Request, string) (int, http.Header, error) { return code, h, nil }
}

// replies has the receiver answer otherwise from now on.
func (f *fixture) replies(r reply) { f.locked(func() { f.reply = r }) }

// change changes the entry of the webhook.
func (f *fixture) change(entry string, hold time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := *f.webhook
	changed.Entry, changed.Hold = entry, hold
	f.webhook = &changed
}

// use changes the entry of the webhook, and waits until the manager knows.
func (f *fixture) use(entry string, hold time.Duration) {
	f.change(entry, hold)
	time.Sleep(lookEvery)
	synctest.Wait()
}

// run runs a test with a manager, until what it begins with was delivered.
func run(t *testing.T, test func(t *testing.T, f *fixture, m *Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		secrets, err := ParseSecrets([]byte(secretOf(32, 1)))
		require.NoError(t, err)
		receiver, err := url.Parse("https://hooks.example.com/secret-path")
		require.NoError(t, err)
		kept := memstore.NewTables(memstore.Options{}).Store(nil)
		f := &fixture{
			notes: kept, names: []string{"chat", "other"}, t: t, reply: status(http.StatusNoContent),
			observed: observed{tried: map[Result]int{}},
		}
		f.webhook = &Webhook{
			Name: "app", Entry: "1", URL: receiver, Secrets: secrets, Report: Online,
			Namespaces: func(namespace string) bool { return strings.HasPrefix(namespace, "chat") },
		}
		m := New(Options{
			Store: f, Watch: f.watch, Append: appendUser, Observe: f, MaxNamespaces: func() int { return 10 },
			Webhooks:  func() []*Webhook { f.mu.Lock(); defer f.mu.Unlock(); return []*Webhook{f.webhook} },
			Logger:    slog.New(slog.NewTextHandler(&f.log, nil)),
			Transport: func(*Webhook) http.RoundTripper { return f },
			Random:    func() float64 { return 0.999 },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { m.Run(ctx) })
		require.Equal(t, []string{"reset", "snapshot zoe"}, f.got())
		test(t, f, m)
		cancel()
		running.Wait()
		require.Equal(t, f.watchers, f.closed)
		require.NotContains(t, f.log.String(), "secret-path")
	})
}

// comes is a batch in which users become green.
func comes(users ...string) (b feed.Batch) {
	for _, user := range users {
		u := update(user, lastseen.Grey, lastseen.Green)
		u.Recorded = lastseen.InstantOf(time.Now())
		b.Users = append(b.Users, u)
	}
	return b
}
