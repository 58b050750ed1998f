package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// openConnections is how many connections there are in an open loop at most.
const openConnections = 256

// openLoop sends pings at a fixed rate, whether or not the ones before were answered, so that a server
// that stalls is seen to.
func (l *lab) openLoop(ctx context.Context, s *server, path string, perSecond int, d time.Duration) (measurement, error) {
	attacker := vegeta.NewAttacker(
		vegeta.Connections(openConnections), vegeta.MaxConnections(openConnections), vegeta.HTTP2(false),
		vegeta.Workers(64), vegeta.MaxWorkers(4096), vegeta.Timeout(10*time.Second),
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
	latencies := make([]time.Duration, 0, int(float64(perSecond)*d.Seconds())+1)
	failures := 0
	var failure string
	var first, last time.Time
	for r := range attacker.Attack(targeter, vegeta.Rate{Freq: perSecond, Per: time.Second}, d, "") {
		if r.Error != "" || r.Code >= http.StatusMultipleChoices {
			failures++
			failure = fmt.Sprintf("%d %s", r.Code, r.Error)
		}
		if first.IsZero() || r.Timestamp.Before(first) {
			first = r.Timestamp
		}
		if r.End().After(last) {
			last = r.End()
		}
		latencies = append(latencies, r.Latency)
	}
	m := measurement{
		units: float64(len(latencies)), elapsed: last.Sub(first), load: ownCPU() - before,
		p50: medianTime(latencies), p99: quantile(latencies, 0.99),
		command: fmt.Sprintf("vegeta as a library: %d requests a second, open loop, at most %d connections", perSecond, openConnections),
	}
	m.share = m.load.Seconds() / m.elapsed.Seconds() / float64(runtime.NumCPU())
	switch {
	case ctx.Err() != nil:
		return m, context.Cause(ctx)
	case failures > 0:
		return m, fmt.Errorf("%d of %d requests failed, as in %s", failures, len(latencies), failure)
	case m.rate() < 0.95*float64(perSecond):
		return m, fmt.Errorf("of %d requests a second only %.0f were sent: the load is too much for this machine", perSecond, m.rate())
	case len(latencies) == 0:
		return m, errors.New("nothing was sent")
	}
	return m, nil
}

// halfRate is half of the highest throughput of a contestant, measured once.
func (l *lab) halfRate(name string) (int, error) {
	if l.maxima[name] == 0 {
		p, err := contestants()[name](l)
		if err != nil {
			return 0, err
		}
		for range 3 { // the first warms up
			m, err := p(l.ctx, l.duration)
			if err != nil {
				return 0, err
			}
			l.maxima[name] = m.rate()
		}
	}
	return int(l.maxima[name] / 2), nil
}
