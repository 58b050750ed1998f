package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// openConnections is how many connections there are in an open loop at most.
const openConnections = 256

// openLoop sends pings at a fixed rate, whether or not the ones before were answered, so that a server
// that stalls is seen to. At rate 0 it is no open loop, but as many as 64 callers get answered.
func (l *lab) openLoop(ctx context.Context, s *server, path string, perSecond int, d time.Duration) (measurement, error) {
	workers := uint64(4096)
	if perSecond == 0 {
		workers = 64
	}
	attacker := vegeta.NewAttacker(
		vegeta.Connections(openConnections), vegeta.MaxConnections(openConnections), vegeta.HTTP2(false),
		vegeta.Workers(64), vegeta.MaxWorkers(workers), vegeta.Timeout(10*time.Second),
	)
	header := http.Header{"Prefer": []string{"return=minimal"}}
	targeter := func(t *vegeta.Target) error {
		t.Method, t.Header = http.MethodPost, header
		t.URL = s.url + crowdPath + l.ids.some() + path
		return nil
	}
	stop := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer stop()
	before := ownCPU()
	var t tally
	for r := range attacker.Attack(targeter, vegeta.Rate{Freq: perSecond, Per: time.Second}, d, "") {
		t.add(r)
	}
	m := measurement{
		units: float64(len(t.latencies)), elapsed: t.answered.Sub(t.first), load: ownCPU() - before,
		p50: medianTime(t.latencies), p99: quantile(t.latencies, 0.99),
		command: fmt.Sprintf("vegeta as a library: %d requests a second, open loop, at most %d connections", perSecond, openConnections),
	}
	m.share = m.load.Seconds() / m.elapsed.Seconds() / float64(runtime.NumCPU())
	if ctx.Err() != nil {
		return m, context.Cause(ctx)
	}
	return m, t.err(perSecond)
}

// tally is what became of the requests.
type tally struct {
	latencies             []time.Duration
	first, last, answered time.Time // sent first, sent last, answered last
	failures              int
	failure               string // one of them
}

func (t *tally) add(r *vegeta.Result) {
	t.latencies = append(t.latencies, r.Latency)
	if r.Error != "" || r.Code >= http.StatusMultipleChoices {
		t.failures++
		t.failure = fmt.Sprintf("%d %s", r.Code, r.Error)
	}
	if t.first.IsZero() || r.Timestamp.Before(t.first) {
		t.first = r.Timestamp
	}
	if r.Timestamp.After(t.last) {
		t.last = r.Timestamp
	}
	if r.End().After(t.answered) {
		t.answered = r.End()
	}
}

// err says what spoils the measurement: a request that failed, or fewer of them than wanted.
func (t *tally) err(perSecond int) error {
	if len(t.latencies) < 2 {
		return errTooFew
	}
	if t.failures > 0 {
		return fmt.Errorf("%d of %d requests failed, as in %s", t.failures, len(t.latencies), t.failure)
	}
	if sent := float64(len(t.latencies)-1) / t.last.Sub(t.first).Seconds(); sent < 0.95*float64(perSecond) {
		return fmt.Errorf("of %d requests a second only %.0f were sent: the load is too much for this machine", perSecond, sent)
	}
	return nil
}

// halfRate is half of the pings a second that a server answers on 64 connections when the same client
// sends them one after the other, as fast as it can. That is less than with wrk, since this client takes
// several times the CPU time from the same machine. It is measured once.
func (l *lab) halfRate(ctx context.Context, s *server) (int, error) {
	if l.half[s.name] == 0 {
		var m measurement
		for range 2 { // the first warms up
			var err error
			if m, err = l.openLoop(ctx, s, "/ping", 0, l.duration); err != nil {
				return 0, err
			}
		}
		l.half[s.name] = int(m.rate() / 2)
		l.logf("%s: %.0f pings a second at most from this client", s.name, m.rate())
	}
	return l.half[s.name], nil
}
