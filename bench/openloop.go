package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// openConnections is the highest number of connections in an open loop.
const openConnections = 256

// openPing is the ping whose highest rate is measured. It is also sent to servers that only one workload uses.
func openPing() request { return ping("ping, open loop", coalescing, randomNS) }

// openAtHalf sets up an open loop at half of the highest rate of pings.
func (f *fixture) openAtHalf(r request) (measureFunc, error) {
	s, err := f.filled(r.server, r.namespace)
	if err != nil {
		return nil, err
	}
	half, err := f.halfRate(f.ctx, s)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		return s.withCPU(func() (measurement, error) { return f.openLoop(ctx, s, r, half, d) })
	}, nil
}

// openLoop sends requests at a fixed rate, whether or not the previous ones have responses, so that a stall shows. With
// rate 0 it is a closed loop of 64 callers.
func (f *fixture) openLoop(
	ctx context.Context, s *server, r request, perSecond int, d time.Duration,
) (measurement, error) {
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
		t.Method, t.URL, t.Header = r.method, s.url+strings.Replace(r.path, "{user}", f.ids.random(), 1), header
		return nil
	}
	stop := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer stop()
	var seen vegeta.Metrics
	for r := range attacker.Attack(targeter, vegeta.Rate{Freq: perSecond, Per: time.Second}, d, "") {
		seen.Add(r)
	}
	seen.Close()
	m := measurement{
		units: float64(seen.Requests), elapsed: seen.End.Sub(seen.Earliest), loadCPUs: float64(runtime.NumCPU()),
		p50: seen.Latencies.P50, p99: seen.Latencies.P99,
		command: fmt.Sprintf("vegeta as a library: %d requests a second, open loop, at most %d connections",
			perSecond, openConnections),
	}
	if ctx.Err() != nil {
		return m, context.Cause(ctx)
	}
	return m, openLoopErr(&seen, perSecond)
}

// openLoopErr returns what makes the measurement invalid: a request that failed, or too low a rate.
func openLoopErr(seen *vegeta.Metrics, perSecond int) error {
	switch {
	case seen.Requests < 2:
		return errTooFew
	case seen.Success < 1:
		return fmt.Errorf("of %d requests, %.2f %% succeeded: %.200q", seen.Requests, 100*seen.Success, seen.Errors)
	case seen.Rate < 0.95*float64(perSecond):
		const text = "only %.0f of %d requests a second were sent: the load is too much for this machine"
		return fmt.Errorf(text, seen.Rate, perSecond)
	}
	return nil
}

// halfRate returns half of the highest rate of pings that vegeta reaches with 64 callers. That is less than with wrk,
// because vegeta takes several times the CPU time from the same machine. It is measured once per server.
func (f *fixture) halfRate(ctx context.Context, s *server) (int, error) {
	if f.half[s.name] == 0 {
		var m measurement
		for range 2 { // the first is a warm-up
			var err error
			if m, err = f.openLoop(ctx, s, openPing(), 0, f.duration); err != nil {
				return 0, err
			}
		}
		f.half[s.name] = int(m.rate() / 2)
		f.logf("%s: %.0f pings a second at most from this client", s.name, m.rate())
	}
	return f.half[s.name], nil
}
