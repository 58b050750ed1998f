package client

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// PingerOptions are settings of a [Pinger].
type PingerOptions struct {
	// Device is the device that the user is on. Choose a random ID for each start of the app. nil sends none.
	Device *Device
	// OnPing is called with the outcome of each ping, from one goroutine. nil ignores it.
	OnPing func(Presence, error)
}

// Pinger keeps a user online: it pings at once, and then as often as the server asks for.
type Pinger struct {
	client          *Client
	namespace, user string
	options         PingerOptions
	stopping        chan struct{}
	stop            func() // closes stopping
	ended           chan struct{}
	changed         chan struct{} // the activity

	mu       sync.Mutex
	activity string
}

// StartPinger begins to ping. It goes on until [Pinger.Stop], through outages of any length, unless the server refuses
// the ping for good, as 400, 401 and 403 do: OnPing has that error last.
func (c *Client) StartPinger(namespace, user string, o PingerOptions) *Pinger {
	stopping := make(chan struct{})
	p := &Pinger{
		client: c, namespace: namespace, user: user, options: o,
		stopping: stopping, stop: sync.OnceFunc(func() { close(stopping) }),
		ended: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	go p.run()
	return p
}

// SetActivity says whether the person uses the device: "active" or "idle". It needs a device, and is sent at once.
func (p *Pinger) SetActivity(activity string) {
	p.mu.Lock()
	p.activity = activity
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Stop ends the pings and records that the user left. It waits for a ping in progress, which could otherwise arrive
// after the leave. Without Stop, the user turns grey by time. Do not call it in OnPing, whose end it waits for.
func (p *Pinger) Stop(ctx context.Context) error {
	p.stop()
	select {
	case <-p.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := p.client.RecordLeave(ctx, p.namespace, p.user, Leave{Device: p.options.Device})
	return err
}

func (p *Pinger) run() {
	defer close(p.ended)
	failed := 0
	for {
		presence, err := p.ping()
		if p.options.OnPing != nil {
			p.options.OnPing(presence, err)
		}
		var problem *Error
		if errors.As(err, &problem) && problem.Permanent() {
			return
		}
		next, changed := max(time.Duration(presence.PingAfterMs)*time.Millisecond, time.Second), p.changed
		if failed++; err == nil {
			failed = 0
		} else {
			next, changed = backoff(err, failed), nil
		}
		if !p.wait(next, changed) {
			return
		}
	}
}

// ping pings once. No context ends it, since it could arrive nevertheless: only the client's Timeout does.
func (p *Pinger) ping() (presence Presence, err error) {
	p.mu.Lock()
	activity := p.activity
	p.mu.Unlock()
	path := route("namespaces", p.namespace, "users", p.user, "ping")
	body := Ping{Device: p.options.Device, Activity: activity}
	r := request{method: http.MethodPost, path: path, body: body, again: never}
	return presence, p.client.do(context.Background(), r, &presence)
}

// wait waits for a time, or until the activity changes. It reports whether to go on.
func (p *Pinger) wait(d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-changed:
		return true
	case <-p.stopping:
		return false
	}
}
