package main

import (
	"context"
	"fmt"
	"net"
	"sort"
	"strings"
	"syscall"
	"time"
)

// reconnect kills a server that holds connections, starts it again, and measures how long it takes until all its
// clients are welcome. They all lost their connections at once; each comes back at a random time within a second, and
// backs off when it is refused.
func (f *fixture) reconnect(ctx context.Context, _ time.Duration) (measurement, error) {
	n := f.tenth(manyConnections)
	servers, err := f.launchHolding("reconnecting", 1)
	if err != nil {
		return measurement{}, err
	}
	defer func() { servers.stop() }()
	a := newAudience(lastseenProtocol, servers.urls(), "-again", "-at-once", fmt.Sprint(n))
	defer a.stop()
	begun := time.Now()
	if err := a.grow(ctx, n); err != nil {
		return measurement{}, err
	}
	ramp := time.Since(begun)
	before := a.sum()
	if servers[0], err = f.restart(servers[0]); err != nil {
		return measurement{}, err
	}
	begun = time.Now() // it listens
	m, err := servers.withCPU(func() (measurement, error) {
		for deadline := begun.Add(5 * time.Minute); ; {
			seen := a.sum()
			if seen.Welcomed-before.Welcomed >= n && seen.Open == n {
				return measurement{units: float64(n), elapsed: time.Since(begun)}, nil
			}
			if time.Now().After(deadline) {
				return measurement{}, fmt.Errorf("%d of %d connections are open: %v", seen.Open, n, seen.Ended)
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return measurement{}, err
			}
		}
	})
	seen := a.sum()
	m.value = m.elapsed.Seconds()
	m.command = fmt.Sprintf("%d connections; kill -9; cmd/lastseen again on the same port", n)
	m.note = fmt.Sprintf("%d clients; first connected in %.1f s; ends and refusals since: %s; Retry-After: %s; "+
		"CPU time: server %.1f s, Redis %.1f s", n, ramp.Seconds(), listed(seen.Ended, before.Ended),
		listed(seen.Refused, before.Refused), m.server.Seconds(), m.store.Seconds())
	return m, err
}

// restart kills a server and starts it again, with the same arguments and Redis.
func (f *fixture) restart(s *server) (*server, error) {
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	<-s.done
	if connection, err := net.Dial("tcp", "127.0.0.1:"+s.port); err == nil {
		_ = connection.Close() // nothing was sent
		return nil, fmt.Errorf("%s still listens", s.name)
	}
	return f.start(server{name: s.name + " again", port: s.port, admin: s.admin, store: s.store}, s.cmd.Path,
		s.cmd.Args[1:]...)
}

// listed returns counts since others as text.
func listed(counts, before map[string]int) string {
	var parts []string
	for name, n := range counts {
		if n > before[name] {
			parts = append(parts, fmt.Sprintf("%d × %s", n-before[name], name))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
