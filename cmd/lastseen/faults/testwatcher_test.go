//go:build faults

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

const (
	// watchSilence is how long a watcher waits for an event before it connects again: a tick comes within 20 s.
	watchSilence = 30 * time.Second
	// watchConnect is how long it waits for a response.
	watchConnect = 10 * time.Second
	// mostInQuery is how many users the query of a GET names. With more, a watcher sends a POST.
	mostInQuery = 100
)

// watcher follows the changes of a namespace over Server-Sent Events, at servers in turn. Whenever the connection ends,
// it continues at another one with Last-Event-ID.
type watcher struct {
	name      string
	ledger    *ledger
	namespace string
	urls      []string
	users     []string // nil for everyone
	client    *http.Client
	random    *rand.Rand
	stop      context.CancelFunc
	over      sync.WaitGroup

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

var (
	errSilence  = errors.New("silence")
	errNotHeard = errors.New("no response")
)

// problemOf names an error.
func problemOf(err error) string {
	var refused refusal
	switch {
	case errors.As(err, &refused), errors.Is(err, errSilence), errors.Is(err, errNotHeard):
		return err.Error()
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
	silence := time.AfterFunc(watchConnect, func() { cancel(errNotHeard) })
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
	silence.Stop()
	silence = time.AfterFunc(watchSilence, func() { cancel(errSilence) })
	defer silence.Stop()
	err = w.read(response.Body, func() { silence.Reset(watchSilence) })
	return errors.Join(context.Cause(ctx), err)
}

// request returns the request that continues after the last event.
func (w *watcher) request(ctx context.Context, server string) (*http.Request, error) {
	target := server + "/v1/namespaces/" + url.PathEscape(w.namespace) + "/changes"
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

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// read notes the events of a stream until it ends, and calls heard for each line.
func (w *watcher) read(stream io.Reader, heard func()) error {
	lines := bufio.NewReader(stream)
	live := false
	var e feedEvent
	var data []byte
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err // an event without its end does not count
		}
		heard()
		field, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			data = append(data, value...)
		case "retry":
			w.checkRetry(value)
		case "":
			if value == "" && data != nil {
				e.received, e.live = time.Now(), live
				live = w.note(e, data) || live
				e, data = feedEvent{}, nil
			}
		}
	}
}

// checkRetry checks that a server asks for a short pause, which clients here ignore to spare time.
func (w *watcher) checkRetry(value string) {
	if ms, err := strconv.Atoi(value); err != nil || ms < 0 || ms > 15_000 {
		w.ledger.violate("%s: retry is %q", w.name, value)
	}
}

// note notes an event, and reports whether the watcher is up to date after it.
func (w *watcher) note(e feedEvent, data []byte) (current bool) {
	if err := json.Unmarshal(data, &e.feedData); err != nil {
		w.ledger.violate("%s: the event %q is %q: %v", w.name, e.name, data, err)
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.view.apply(e)
	return !e.More
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
