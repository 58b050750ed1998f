package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	fewConnections  = 5000   // from which on the memory is measured
	manyConnections = 18_000 // of one server
	allConnections  = 45_000 // of three servers together

	// beatTime is how long pings are measured, in units of -duration: longer than from one to the next.
	beatTime = 15
	// cycleTime is how long connections of lastseen are measured. One heartbeat of about four renews the record of the
	// connection, which costs more, every 75 to 100 s. In that time each connection renews its record about once,
	// whenever the measurement begins.
	cycleTime = 50
	// jitter is by what part of an interval clients ping on average: lastseen draws a factor from 0.8 to 1.
	jitter = 0.9
)

// pingInterval returns that of the servers: the default, or in quick runs one of which each measurement has some.
func (f *fixture) pingInterval() time.Duration {
	if f.quick {
		return 10 * time.Second
	}
	return 30 * time.Second
}

// beatInterval returns how often a server sends a WebSocket ping at least.
func (f *fixture) beatInterval() time.Duration { return min(f.pingInterval(), 25*time.Second) }

// The metrics of a Go program.
const (
	heapMetric  = "go_memstats_heap_inuse_bytes"
	stackMetric = "go_memstats_stack_inuse_bytes"
)

// launchHolding starts some of cmd/lastseen, with metrics and perhaps more arguments, on their own Redis.
func (f *fixture) launchHolding(name string, n int, args ...string) (group, error) {
	redis, err := f.launchRedis(name + ", Redis")
	if err != nil {
		return nil, err
	}
	binary, err := f.build()
	if err != nil {
		return nil, err
	}
	var all group
	for i := range n {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		s, err := f.launchWith(redis, fmt.Sprintf("%s %d", name, i), binary, append([]string{
			"--admin-listen", "127.0.0.1:" + port, "--rate-limit", "off", "--ping-interval", f.pingInterval().String(),
		}, args...)...)
		if err != nil {
			return nil, err
		}
		s.admin = "http://127.0.0.1:" + port
		all = append(all, s)
	}
	return all, nil
}

// launchCentrifuge starts a server of the library of Centrifugo.
func (f *fixture) launchCentrifuge() (group, error) {
	s, err := f.launchServe("centrifuge", "", "--centrifuge")
	if err != nil {
		return nil, err
	}
	s.admin = s.url
	return group{s}, nil
}

// holding is servers whose clients hold connections.
type holding struct {
	group
	*audience
	rss, inUse float64 // bytes of each connection
}

// holding connects n clients to servers, and measures the memory of those after the first fewConnections.
func (f *fixture) holding(servers group, protocol string, n int) (*holding, error) {
	h := &holding{group: servers, audience: newAudience(protocol, servers.urls())}
	few := f.tenth(fewConnections)
	f.logf("%s: %d connections", servers[0].name, n)
	if err := h.grow(f.ctx, few); err != nil {
		return nil, err
	}
	rss, inUse, err := h.memory(f.ctx)
	if err != nil {
		return nil, err
	}
	if err := h.grow(f.ctx, n); err != nil {
		return nil, err
	}
	h.rss, h.inUse, err = h.memory(f.ctx)
	more := float64(n - few)
	h.rss, h.inUse = (h.rss-rss)/more, (h.inUse-inUse)/more
	return h, err
}

// memory returns the memory of all servers: what is resident once it has settled, and heap and stacks in use.
func (g group) memory(ctx context.Context) (rss, inUse float64, err error) {
	if rss, err = waitSettled(ctx, g.rss); err != nil {
		return 0, 0, err
	}
	for _, s := range g {
		if err := s.collect(ctx); err != nil {
			return 0, 0, err
		}
		heap, err := s.number(ctx, heapMetric)
		if err != nil {
			return 0, 0, err
		}
		stacks, err := s.number(ctx, stackMetric)
		if err != nil {
			return 0, 0, err
		}
		inUse += heap + stacks
	}
	return rss, inUse, nil
}

// collect runs the garbage collector until stacks have shrunk.
func (s *server) collect(ctx context.Context) error {
	if s.admin == s.url {
		return nil // its metrics do that
	}
	for range 3 {
		if _, err := get(ctx, s.admin+"/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
	}
	return nil
}

// number returns a metric of the server.
func (s *server) number(ctx context.Context, name string) (float64, error) {
	path := "/metrics"
	if s.admin == s.url {
		path = memoryPath
	}
	text, err := get(ctx, s.admin+path)
	if err != nil {
		return 0, err
	}
	return numberAfter(append([]byte("\n"), text...), "\n"+name+" ")
}

// heartbeats measures the CPU time of connections on which nothing happens but pings of the servers. A unit is a
// minute of a user.
func (f *fixture) heartbeats(h *holding) measureFunc {
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		before, renewedBefore, err := h.beats(ctx)
		if err != nil {
			return measurement{}, err
		}
		clients, err := h.cpu()
		if err != nil {
			return measurement{}, err
		}
		begun := time.Now()
		m, err := h.withCPU(func() (measurement, error) { return measurement{}, pause(ctx, h.longEnough(d)) })
		if err != nil {
			return m, err
		}
		m.elapsed = time.Since(begun)
		m.units = float64(h.users) * m.elapsed.Minutes()
		after, renewed, err := h.beats(ctx)
		used, cpuErr := h.cpu()
		seen := h.sum()
		if seen.Open != h.users || seen.Welcomed != h.users {
			const lost = "%d of %d connections are open; the others: %v"
			err = errors.Join(err, fmt.Errorf(lost, seen.Open, h.users, seen.Ended))
		}
		m.load, m.loadCPUs = used-clients, 2
		m.beats, m.memory, m.inUse = after-before, h.rss, h.inUse
		m.command = fmt.Sprintf("%d connections in %d processes, idle", h.users, len(h.parts))
		m.note = h.note(m, int(renewed-renewedBefore))
		return m, errors.Join(err, cpuErr)
	}
}

// note describes a measurement in which some heartbeats renewed records.
func (h *holding) note(m measurement, renewed int) string {
	const text = "%d heartbeats recorded in %s, %d of which renewed records; %.1f KiB each resident, %.1f in use; %s"
	took := m.elapsed.Round(time.Second)
	return fmt.Sprintf(text, int(m.beats), took, renewed, h.rss/1024, h.inUse/1024, million(m, h))
}

// million returns what a million of these connections would take, at the same cost each.
func million(m measurement, h *holding) string {
	times := 1e6 / float64(h.users)
	return fmt.Sprintf("a million would take %.1f GiB, %.1f processors of servers and %.2f of Redis",
		1e6*h.rss/(1<<30), times*busy(m.server, m)/100, times*busy(m.store, m)/100)
}

// longEnough returns for how long connections are measured, given -duration.
func (h *holding) longEnough(d time.Duration) time.Duration {
	if h.protocol == centrifugeProtocol {
		return beatTime * d
	}
	return cycleTime * d
}

// beats returns how many heartbeats the servers have recorded, and how many of them renewed the record of a connection.
func (h *holding) beats(ctx context.Context) (all, renewed float64, err error) {
	if h.protocol == centrifugeProtocol {
		return 0, 0, nil
	}
	for _, s := range h.group {
		pings, err := s.number(ctx, `lastseen_batch_members_sum{kind="ping"}`)
		if err != nil {
			return 0, 0, err
		}
		records, err := s.number(ctx, `lastseen_batch_members_sum{kind="device"}`)
		if err != nil {
			return 0, 0, err
		}
		all, renewed = all+pings+records, renewed+records
	}
	return all, renewed, nil
}

// connected sets up n clients of lastseen servers.
func (f *fixture) connected(servers, n int) setup {
	return func() (measureFunc, error) {
		n := f.tenth(n)
		all, err := f.launchHolding(fmt.Sprintf("holding %d", n), servers)
		if err != nil {
			return nil, err
		}
		h, err := f.holding(all, lastseenProtocol, n)
		if err != nil {
			return nil, err
		}
		return f.heartbeats(h), nil
	}
}

// connectedToCentrifuge sets up as many clients of a server of Centrifugo's library.
func (f *fixture) connectedToCentrifuge() (measureFunc, error) {
	all, err := f.launchCentrifuge()
	if err != nil {
		return nil, err
	}
	h, err := f.holding(all, centrifugeProtocol, f.tenth(manyConnections))
	if err != nil {
		return nil, err
	}
	return f.heartbeats(h), nil
}

// pinging sets up as many users who ping over HTTP as advised, each with one request.
func (f *fixture) pinging() (measureFunc, error) {
	n := f.tenth(manyConnections)
	few := *f
	few.ids = f.ids[:n*idSize]
	servers, err := f.launchHolding("pinging", 1)
	if err != nil {
		return nil, err
	}
	perSecond := int(float64(n) / (jitter * f.pingInterval().Seconds()))
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		m, err := servers.withCPU(func() (measurement, error) {
			return few.openLoop(ctx, servers[0], openPing(), perSecond, beatTime*d)
		})
		m.beats = m.units
		m.units = float64(n) * m.elapsed.Minutes()
		m.p50, m.p99 = 0, 0
		return m, err
	}, nil
}

// pingingInBulk sets up as many users who ping in one request a second, as many as heartbeats of connections are.
func (f *fixture) pingingInBulk() (measureFunc, error) {
	servers, err := f.launchHolding("pinging in bulk", 1)
	if err != nil {
		return nil, err
	}
	n := f.tenth(manyConnections)
	perSecond := int(float64(n) / (jitter * f.beatInterval().Seconds()))
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		return servers.withCPU(func() (measurement, error) {
			begun, place := time.Now(), 0
			for i := range beatTime * int(d.Seconds()) {
				if err := pause(ctx, time.Until(begun.Add(time.Duration(i)*time.Second))); err != nil {
					return measurement{}, err
				}
				var body bytes.Buffer
				for range perSecond {
					body.Write(f.ids.lines(place, place+1, 1, nil))
					place = (place + 1) % n
				}
				if err := sendLines(ctx, servers[0].url, randomNS, body.Bytes(), perSecond); err != nil {
					return measurement{}, err
				}
			}
			m := measurement{elapsed: time.Since(begun), beats: float64(perSecond * beatTime * int(d.Seconds()))}
			m.units, m.command = m.beats, fmt.Sprintf("NDJSON, %d users in one request a second", perSecond)
			return m, nil
		})
	}, nil
}
