//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"path"
	"sync"
	"testing"
	"time"
)

// probe pings one server all the time, to know how long it does not serve. It also looks up users who never pinged.
type probe struct {
	load *load
	url  string
	user string
	done chan struct{}
	over sync.WaitGroup

	mu    sync.Mutex
	state probeState
}

// probeState is what a probe got.
type probeState struct {
	pings   int // that succeeded
	failing bool
	since   time.Time     // the last ping that succeeded
	longest time.Duration // between two pings that succeeded
	recent  time.Duration // as longest, since [probe.reset]
}

// startProbe starts a probe, until the test ends.
func startProbe(t testing.TB, l *load, s *server) *probe {
	p := &probe{load: l, url: s.url, user: "probe-" + path.Base(s.url), done: make(chan struct{})}
	p.state.since = time.Now()
	p.over.Go(func() {
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		for i := 0; ; i++ {
			select {
			case <-p.done:
				return
			case <-ticks.C:
				p.ping()
				p.lookUp(fmt.Sprintf("never-%d", i%100))
			}
		}
	})
	t.Cleanup(p.end)
	return p
}

// end stops the probe.
func (p *probe) end() {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	p.over.Wait()
}

func (p *probe) ping() {
	sent := time.Now()
	end := p.load.attempt(p.user)
	body, ok := p.load.callServer(p.url, http.MethodPost, "/users/"+p.user+"/ping", nil)
	if ok {
		p.load.acknowledgeBody(p.user, body, sent)
	}
	end(ok)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.failing = !ok
	if ok {
		p.state.pings++
		gap := time.Since(p.state.since).Round(time.Millisecond)
		p.state.longest, p.state.recent = max(p.state.longest, gap), max(p.state.recent, gap)
		p.state.since = time.Now()
	}
}

func (p *probe) lookUp(user string) {
	began := time.Now()
	if body, ok := p.load.callServer(p.url, http.MethodGet, "/users/"+user, nil); ok {
		p.load.checkBody(user, body, began)
	}
}

func (p *probe) snapshot() probeState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// reset forgets the longest time so far.
func (p *probe) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.recent = 0
}
