//go:build faults

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testserver"
)

const (
	// watchSilence is how long a watcher waits for a response or an event before it connects again: a tick comes within
	// 20 s.
	watchSilence = 30 * time.Second
	// mostInQuery is how many users the query of a GET names. With more, a watcher sends a POST.
	mostInQuery = 100
)

// watcher follows the changes of a namespace over Server-Sent Events, at servers in turn. Whenever the connection ends,
// it continues at another one with Last-Event-ID.
type watcher struct {
	name   string
	ledger *ledger
	path   string // of the changes
	urls   []string
	users  []string // nil for everyone
	client *http.Client
	random *rand.Rand
	stop   context.CancelFunc
	over   sync.WaitGroup

	mu       sync.Mutex
	view     *view
	problems map[string]int // why connections ended or failed
	connects int            // that began an event stream
}

// follow watches until the context ends.
func (w *watcher) follow(ctx context.Context) {
	for i := w.random.IntN(len(w.urls)); ctx.Err() == nil; i++ {
		err := w.connect(ctx, w.urls[i%len(w.urls)])
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		w.problems[problemOf(err)]++
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(50+w.random.IntN(200)) * time.Millisecond):
		}
	}
}

// refusal is the error for a response that is not an event stream.
type refusal string

func (r refusal) Error() string { return string(r) }

var errSilence = errors.New("silence")

// problemOf names an error.
func problemOf(err error) string {
	var refused refusal
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.Is(err, errSilence):
		return errSilence.Error()
	case errors.Is(err, io.EOF):
		return "ended"
	default:
		return "broken"
	}
}

// connect follows one connection to its end.
func (w *watcher) connect(ctx context.Context, server string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(watchSilence, func() { cancel(errSilence) })
	defer silence.Stop()
	request, err := w.request(ctx, server)
	if err != nil {
		return err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body) // a refusal without a body has no code
		return refusal(fmt.Sprintf("%d %s", response.StatusCode, errorCode(body)))
	}
	w.mu.Lock()
	w.view.connect()
	w.connects++
	if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		w.ledger.violate("%s: Content-Type is %q", w.name, kind)
	}
	w.mu.Unlock()
	err = w.read(response.Body, func() { silence.Reset(watchSilence) })
	return errors.Join(context.Cause(ctx), err)
}

// request returns the request that continues after the last event.
func (w *watcher) request(ctx context.Context, server string) (*http.Request, error) {
	target := server + w.path
	method, body := http.MethodGet, []byte(nil)
	switch {
	case len(w.users) > mostInQuery:
		method, body = http.MethodPost, must(json.Marshal(map[string][]string{"users": w.users}))
	case w.users != nil:
		target += "?" + url.Values{"user": w.users}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view.id != "" {
		request.Header.Set("Last-Event-ID", w.view.id)
	}
	return request, nil
}

// onBytes is called for whatever arrives.
type onBytes func()

func (h onBytes) Write(b []byte) (int, error) {
	h()
	return len(b), nil
}

// read notes the events of a stream until it ends, and calls a function for whatever arrives. An event without its end
// does not count.
func (w *watcher) read(stream io.Reader, arrived onBytes) error {
	events := testserver.ReadEvents(io.TeeReader(stream, arrived))
	for {
		name, data := events.Any()
		if events.Retry != "" {
			w.checkRetry(events.Retry)
			events.Retry = ""
		}
		if name == "" {
			return io.EOF
		}
		w.note(feedEvent{name: name, id: events.ID, received: time.Now()}, []byte(data))
	}
}

// checkRetry checks that a server asks for a short pause, which clients here ignore to spare time.
func (w *watcher) checkRetry(value string) {
	if ms, err := strconv.Atoi(value); err != nil || ms < 0 || ms > 15_000 {
		w.ledger.violate("%s: retry is %q", w.name, value)
	}
}

// note notes an event.
func (w *watcher) note(e feedEvent, data []byte) {
	if err := json.Unmarshal(data, &e.feedData); err != nil {
		w.ledger.violate("%s: the event %q is %q: %v", w.name, e.name, data, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.view.apply(e)
}

// end stops the watcher.
func (w *watcher) end() {
	w.stop()
	w.over.Wait()
	w.client.CloseIdleConnections()
}

// watcherStats are what a watcher got.
type watcherStats struct {
	viewStats
	connects int
	problems map[string]int
	asOf     lastseen.Instant
}

func (w *watcher) snapshot() watcherStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return watcherStats{w.view.stats, w.connects, maps.Clone(w.problems), w.view.asOf}
}

// watchers are several, of a load.
type watchers struct {
	load *load
	all  []*watcher
}

// startWatchers starts watchers of everyone, of many users, and of a few, at the servers of a load. They stop at the
// latest when the test ends.
func startWatchers(t testing.TB, l *load, each int, thresholds lastseen.Thresholds) *watchers {
	t.Helper()
	ws := &watchers{load: l}
	many := numbered(l.options.name, min(l.options.users, 500))
	for i := range each {
		ws.start(t, fmt.Sprintf("everyone %d", i), nil, thresholds)
		ws.start(t, fmt.Sprintf("many %d", i), many, thresholds)
		ws.start(t, fmt.Sprintf("few %d", i), many[len(many)/2:][:min(mostInQuery, len(many)/2)], thresholds)
	}
	return ws
}

func (ws *watchers) start(t testing.TB, name string, users []string, thresholds lastseen.Thresholds) {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &watcher{
		name: name, ledger: ws.load.ledger, path: ws.load.path("/changes"), urls: ws.load.urls, users: users,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		random: rand.New(rand.NewPCG(ws.load.options.seed, uint64(len(ws.all)))),
		stop:   stop, view: newView(name, ws.load.ledger, thresholds, users), problems: map[string]int{},
	}
	ws.all = append(ws.all, w)
	w.over.Go(func() { w.follow(ctx) })
	t.Cleanup(w.end)
}

// awaitUpdates waits until every watcher has got n more updates.
func (ws *watchers) awaitUpdates(t testing.TB, n int) {
	t.Helper()
	before := map[*watcher]int{}
	for _, w := range ws.all {
		before[w] = w.snapshot().updates
	}
	for _, w := range ws.all {
		await(t, fmt.Sprintf("%s: %d more updates", w.name, n), func() bool {
			ws.load.requireKept(t)
			return w.snapshot().updates >= before[w]+n
		})
	}
}

// finish stops the load, compares what each watcher was told with a lookup of all users, and stops them.
func (ws *watchers) finish(t testing.TB, s *server) {
	t.Helper()
	l := ws.load
	l.stop(t)
	stopped := lastseen.InstantOf(time.Now().Add(clockTolerance))
	states := l.verify(t, s)
	maps.DeleteFunc(states, func(user string, _ lastseen.State) bool { // a request can change them whose client gave up
		_, ok := l.settled(user, time.Now())
		return !ok
	})
	compared := 0
	for _, w := range ws.all {
		await(t, w.name+" to be told all", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			certain, ok := w.view.checkExactly(states, stopped)
			compared += certain
			return ok
		})
		w.end()
		s := w.snapshot()
		t.Logf("%s: %d connections, ended by %v; %d events, %d updates, %d resets; %d checks", w.name, s.connects,
			s.problems, s.events, s.updates, s.resets, s.checks)
		require.Positive(t, s.updates, w.name)
		for problem := range s.problems {
			require.Contains(t, allowedProblems(), problem, w.name)
		}
	}
	require.Positive(t, compared, "users whose state is certain")
	l.requireKept(t)
}

// resets returns the most resets of one watcher, and the fewest.
func (ws *watchers) resets() (most, fewest int) {
	fewest = math.MaxInt
	for _, w := range ws.all {
		n := w.snapshot().resets
		most, fewest = max(most, n), min(fewest, n)
	}
	return most, fewest
}

// allowedProblems are why a connection may end, or not begin, while something is broken.
func allowedProblems() []string {
	return []string{
		"ended", "broken", errSilence.Error(), storeUnavailable, storeFull, "503 shutting_down", overloaded,
	}
}
