package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// perServer is the largest number of connections of one server: a process may open 20,000 descriptors.
const perServer = 18_000

// callsMetric and followedMetric are how many calls continue, on the server that ends them, and how many of their
// parties are connected to a server.
const (
	callsMetric    = "lastseen_calls"
	followedMetric = "lastseen_calls_followed"
)

// callComparisons returns the comparisons about calls.
func callComparisons() []comparison {
	line := func(row int, work, subject string, m metric, t target) comparison {
		return comparison{row: row, work: work, subject: subject, metric: m, target: t, long: true}
	}
	server := metric{"CPU", func(m measurement) float64 { return busy(m.server, m) / m.servers }, " %"}
	redis := metric{"CPU", func(m measurement) float64 { return busy(m.store, m) }, " %"}
	const ringing, ongoing = "10,000 calls ringing: how late they are missed, ", "ongoing calls: CPU of "
	return []comparison{
		line(30, ringing+"p50", "ringing", medianLatency(), target{}),
		line(30, ringing+"p99", "ringing", p99Latency(), atMost(200)),
		line(31, ongoing+"each server", "calls", server, target{}),
		line(31, ongoing+"Redis", "calls", redis, target{}),
	}
}

// callWorkloads returns how to set up each workload about calls.
func (f *fixture) callWorkloads() map[string]setup {
	return map[string]setup{
		"ringing": f.once("ringing", f.ringing),
		"calls":   f.once("calls", f.ongoing),
	}
}

// outcome is what a workload that is measured once led to.
type outcome struct {
	measurement
	err error
}

// once returns the setup of a workload that takes long, and of which several numbers are compared: it is measured once
// in a run.
func (f *fixture) once(name string, measure measureFunc) setup {
	return func() (measureFunc, error) {
		return func(ctx context.Context, d time.Duration) (measurement, error) {
			if _, ok := f.measured[name]; !ok {
				m, err := measure(ctx, d)
				f.measured[name] = outcome{m, err}
			}
			return f.measured[name].measurement, f.measured[name].err
		}, nil
	}
}

// caller starts calls and accepts them, over HTTP.
type caller struct {
	servers group
	ids     users
	client  *http.Client
}

func (f *fixture) newCaller(servers group, n int) *caller {
	return &caller{
		servers: servers, ids: newUsers(2 * n),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute},
	}
}

// begin lets a user call the next one, on the device that connections of this program have, and returns the ID of the
// call.
func (c *caller) begin(ctx context.Context, i int) (string, error) {
	const text = `{"from":%q,"to":%q,"device":"bench"}`
	return c.post(ctx, i, "", fmt.Sprintf(text, c.ids.id(2*i), c.ids.id(2*i+1)))
}

func (c *caller) accept(ctx context.Context, i int, id string) error {
	body := fmt.Sprintf(`{"user":%q,"device":"bench"}`, c.ids.id(2*i+1))
	_, err := c.post(ctx, i, "/"+id+"/accept", body)
	return err
}

// post sends a request about the i-th call, and returns the ID of the call. It sends it again if the server is
// overloaded: beginning calls is not measured.
func (c *caller) post(ctx context.Context, i int, path, body string) (id string, err error) {
	url := c.servers[i%len(c.servers)].url + "/v1/namespaces/" + randomNS + "/calls" + path
	key := fmt.Sprintf("Idempotency-Key: call-%d", i)
	for range 10 {
		status, text, err := doWith(ctx, c.client, http.MethodPost, url, key, []byte(body))
		var call struct{ ID string }
		switch {
		case err != nil:
			return "", err
		case status < http.StatusMultipleChoices && json.Unmarshal(text, &call) == nil && call.ID != "":
			return call.ID, nil
		case status != http.StatusServiceUnavailable:
			return "", fmt.Errorf("POST %s: %d %.200s", url, status, text)
		}
		if err := pause(ctx, time.Second); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("POST %s: the server stays unavailable", url)
}

// beginAll begins n calls that the callees accept.
func (c *caller) beginAll(ctx context.Context, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range n {
		group.Go(func() error {
			id, err := c.begin(ctx, i)
			if err != nil {
				return err
			}
			return c.accept(ctx, i, id)
		})
	}
	return group.Wait()
}

// total returns the sum of a metric of all servers.
func (g group) total(ctx context.Context, name string) (sum float64, err error) {
	for _, s := range g {
		n, err := s.number(ctx, name)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// expect waits until the sum of a metric of all servers is a number.
func (g group) expect(ctx context.Context, name string, want int, within time.Duration) error {
	for deadline := time.Now().Add(within); ; {
		sum, err := g.total(ctx, name)
		if err != nil || int(sum) == want {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is %d instead of %d", name, int(sum), want)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// ongoing measures what calls cost whose parties are connected: the CPU time of servers and of their Redis, less what
// the same connections take without calls.
func (f *fixture) ongoing(ctx context.Context, d time.Duration) (measurement, error) {
	n := f.tenth(f.calls)
	servers, err := f.launchHolding("calls", (2*n+perServer-1)/perServer)
	if err != nil {
		return measurement{}, err
	}
	defer servers.stop()
	h := &holding{group: servers, audience: newAudience(lastseenProtocol, servers.urls(), "-again")}
	defer h.audience.stop()
	f.logf("calls: %d connections to %d servers", 2*n, len(servers))
	if err := h.grow(ctx, 2*n); err != nil {
		return measurement{}, err
	}
	measure := f.heartbeats(h)
	f.logf("calls: without calls")
	before, err := measure(ctx, d)
	if err != nil {
		return measurement{}, err
	}
	f.logf("calls: beginning %d calls", n)
	if err := f.newCaller(servers, n).beginAll(ctx, n); err != nil {
		return measurement{}, err
	}
	// Until each party was active: then all that follows is regular.
	if err := errors.Join(pause(ctx, f.pingInterval()), servers.expect(ctx, callsMetric, n, time.Minute)); err != nil {
		return measurement{}, err
	}
	f.logf("calls: with calls")
	after, err := measure(ctx, d)
	if err != nil {
		return measurement{}, err
	}
	err = errors.Join(servers.expect(ctx, callsMetric, n, 0), servers.expect(ctx, followedMetric, 2*n, 0))
	return difference(before, after, n, len(servers)), err
}

// difference returns what calls cost: what was measured with them less what was measured without.
func difference(before, after measurement, calls, servers int) measurement {
	share := float64(after.elapsed) / float64(before.elapsed)
	less := func(after, before time.Duration) time.Duration { return after - time.Duration(share*float64(before)) }
	m := measurement{
		units: float64(calls) * after.elapsed.Seconds(), elapsed: after.elapsed, servers: float64(servers),
		server: less(after.server, before.server), store: less(after.store, before.store),
		load: after.load, loadCPUs: after.loadCPUs,
	}
	m.command = fmt.Sprintf("%d calls, whose %d parties are connected to %d servers", calls, 2*calls, servers)
	const note = "%d calls on %d servers; CPU with the connections of the parties: without calls %.1f %% of a " +
		"processor each server and %.1f %% Redis, with calls %.1f %% and %.1f %%"
	m.note = fmt.Sprintf(note, calls, servers, busy(before.server, before)/m.servers, busy(before.store, before),
		busy(after.server, after)/m.servers, busy(after.store, after))
	return m
}
