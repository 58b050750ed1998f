package client

import (
	"context"
	"errors"
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
	stop            context.CancelFunc
	ended           chan struct{}
	changed         chan struct{} // the activity

	mu       sync.Mutex
	activity string
}

// StartPinger begins to ping. It goes on until [Pinger.Stop], through outages of any length, unless the server refuses
// the ping for good, as 400, 401 and 403 do: OnPing has that error last.
func (c *Client) StartPinger(namespace, user string, o PingerOptions) *Pinger {
	ctx, stop := context.WithCancel(context.Background())
	p := &Pinger{
		client: c, namespace: namespace, user: user, options: o, stop: stop,
		ended: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	go p.run(ctx)
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

// Stop ends the pings and records that the user left. Without that, the user turns grey by time.
func (p *Pinger) Stop(ctx context.Context) error {
	p.stop()
	<-p.ended
	_, err := p.client.RecordLeave(ctx, p.namespace, p.user, Leave{Device: p.options.Device})
	return err
}

func (p *Pinger) run(ctx context.Context) {
	defer close(p.ended)
	for failed := 0; ctx.Err() == nil; {
		presence, err := p.ping(ctx)
		if ctx.Err() != nil {
			return
		}
		if p.options.OnPing != nil {
			p.options.OnPing(presence, err)
		}
		var problem *Error
		if errors.As(err, &problem) && problem.permanent() {
			return
		}
		wait := max(time.Duration(presence.PingAfterMs)*time.Millisecond, time.Second)
		if failed++; err == nil {
			failed = 0
		} else {
			wait = backoff(err, failed)
		}
		p.wait(ctx, wait)
	}
}

func (p *Pinger) ping(ctx context.Context) (Presence, error) {
	p.mu.Lock()
	activity := p.activity
	p.mu.Unlock()
	return p.client.PingUser(ctx, p.namespace, p.user, Ping{Device: p.options.Device, Activity: activity})
}

// wait waits for a time, or until the activity changes.
func (p *Pinger) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.changed:
	case <-ctx.Done():
	}
}
