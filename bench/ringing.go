package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"
)

const (
	ringingCalls    = 10_000
	ringingWatchers = 2000             // callers who are connected
	ringingTime     = 15               // in which the calls begin, in units of -duration
	ringingMore     = 10 * time.Second // for which the first call rings longer than that
)

// ringing begins calls that nobody accepts, evenly over a time, so that all of them ring at once before the first one
// is missed. It measures on connections of some callers how late they learn that the call is missed.
func (f *fixture) ringing(ctx context.Context, d time.Duration) (measurement, error) {
	n, over := f.tenth(ringingCalls), ringingTime*d
	servers, err := f.launchRinging(over + ringingMore)
	if err != nil {
		return measurement{}, err
	}
	defer servers.stop()
	c, w := f.newCaller(servers, n), &callWatchers{}
	defer w.close()
	every := ringingCalls / ringingWatchers
	for i := 0; i < n; i += every {
		if err := w.connect(ctx, servers[0].url, c.ids.id(2*i)); err != nil {
			return measurement{}, err
		}
	}
	return servers.withCPU(func() (measurement, error) {
		if err := c.beginEvenly(ctx, n, over); err != nil {
			return measurement{}, err
		}
		if err := servers.expect(ctx, callsMetric, n, ringingMore/2); err != nil {
			return measurement{}, fmt.Errorf("not all calls ring at once: %w", err)
		}
		lags, err := w.wait(ctx, n/every, over+2*ringingMore)
		if err != nil {
			return measurement{}, err
		}
		err = servers.expect(ctx, callsMetric, 0, ringingMore)
		slices.Sort(lags)
		return measurement{
			units: float64(n), elapsed: over, p50: middle(lags), p99: lags[len(lags)*99/100],
			command: fmt.Sprintf("%d calls ring at once, and are missed within %s; %d callers are connected", n, over,
				len(lags)),
			note: fmt.Sprintf("%d of %d calls were measured; the last one was %s late", len(lags), n,
				lags[len(lags)-1].Round(time.Millisecond)),
		}, err
	})
}

// launchRinging starts a server whose calls ring for a time.
func (f *fixture) launchRinging(timeout time.Duration) (group, error) {
	return f.launchHolding("ringing", 1, "--ring-timeout", timeout.String())
}

// beginEvenly begins n calls evenly over a time. It is an error if that takes much longer.
func (c *caller) beginEvenly(ctx context.Context, n int, over time.Duration) error {
	begun := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range n {
		if pause(groupCtx, time.Until(begun.Add(over*time.Duration(i)/time.Duration(n)))) != nil {
			break // the group has the error
		}
		group.Go(func() error {
			_, err := c.begin(groupCtx, i)
			return err
		})
	}
	err := group.Wait()
	if took := time.Since(begun); err == nil && took > over+ringingMore/2 {
		err = fmt.Errorf("beginning the calls took %s: the load is too much for this machine", took)
	}
	return errors.Join(err, context.Cause(ctx))
}

// callWatchers are connections of users that measure how late they learn that calls are missed.
type callWatchers struct {
	conns []*websocket.Conn

	mu   sync.Mutex
	lags []time.Duration
	err  error // of a connection
}

// connect connects a user, and returns once that is welcome.
func (w *callWatchers) connect(ctx context.Context, url, user string) error {
	conn, response, err := websocket.DefaultDialer.DialContext(ctx, "ws"+url[len("http"):]+connectPath, nil)
	if err != nil {
		return err
	}
	_ = response.Body.Close() // the library has read it
	w.conns = append(w.conns, conn)
	hello := fmt.Sprintf(`{"hello":{"user":%q,"device":{"id":"bench","kind":"web"}}}`, user)
	if err := conn.WriteMessage(websocket.TextMessage, []byte(hello)); err != nil {
		return err
	}
	if _, text, err := conn.ReadMessage(); err != nil || len(text) == 0 || text[0] != '{' {
		return fmt.Errorf("no welcome: %.200s %w", text, err)
	}
	go w.read(conn)
	return nil
}

// read notes when missed calls are received.
func (w *callWatchers) read(conn *websocket.Conn) {
	for {
		_, text, err := conn.ReadMessage()
		lag, missed := missedBy(text, time.Now())
		w.mu.Lock()
		switch {
		case err != nil:
			w.err = err
		case missed:
			w.lags = append(w.lags, lag)
		}
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// missedBy returns how long ago a call was missed, by the frame of a server; false if the frame is about anything else.
func missedBy(frame []byte, now time.Time) (time.Duration, bool) {
	var f struct {
		Call struct {
			State string
			Ended time.Time `json:"ended_at"`
		}
	}
	if json.Unmarshal(frame, &f) != nil || f.Call.State != "missed" {
		return 0, false
	}
	return now.Sub(f.Call.Ended), true
}

// wait returns how late n calls were missed.
func (w *callWatchers) wait(ctx context.Context, n int, within time.Duration) ([]time.Duration, error) {
	for deadline := time.Now().Add(within); ; {
		w.mu.Lock()
		lags, err := slices.Clone(w.lags), w.err
		w.mu.Unlock()
		if err != nil || len(lags) >= n {
			return lags, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d callers learned that their calls are missed", len(lags), n)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// close ends all connections.
func (w *callWatchers) close() {
	for _, conn := range w.conns {
		_ = conn.Close() // it is not used any more
	}
}
