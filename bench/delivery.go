package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	deliveryReaders = 5000
	deliveryWatched = 50          // users of each reader
	deliveryRate    = 5000        // changes a second
	deliveryBatch   = 50          // users of a request, who ping or leave at once
	deliveryStay    = time.Second // from the ping of a user to the leave
)

// delivery sets up readers of a large namespace at a number of servers. What it measures is how late they get changes.
func (f *fixture) delivery(n int) (measureFunc, error) {
	if f.followed != nil { // those of another workload would get the changes, too
		f.followed()
		f.followed = nil
	}
	servers, err := f.launchFollowed(fmt.Sprintf("delivery %d", n), n, "--green", "1h", "--yellow", "2h")
	if err != nil {
		return nil, err
	}
	if err := f.fill(servers[0], feedNS); err != nil {
		return nil, err
	}
	if err := beginFeed(f.ctx, servers[0].url); err != nil {
		return nil, err
	}
	unread, err := f.unread(servers)
	if err != nil {
		return nil, err
	}
	before, err := servers.rss()
	if err != nil {
		return nil, err
	}
	r := &readers{watching: make([]uint16, f.ids.len())}
	f.followed = func() {
		r.close()
		servers.stop()
	}
	err = r.connectAll(f.ctx, servers.urls(), f.readers(), func(int) string { return r.watch(f.ids, deliveryWatched) })
	if err != nil {
		return nil, err
	}
	if err := pause(f.ctx, 5*time.Second); err != nil {
		return nil, err
	}
	after, err := servers.rss()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		m, err := f.deliver(ctx, servers, r, d)
		m.memory = (after - before) / float64(f.readers())
		const note = "%d readers; without them, the servers used %.1f µs and Redis %.1f µs for each change written"
		m.note += fmt.Sprintf(note, f.readers(), unread.perUnit(unread.server), unread.perUnit(unread.store))
		return m, err
	}, nil
}

// readers returns how many read.
func (f *fixture) readers() int { return f.tenth(deliveryReaders) }

// tenth returns a tenth of a number in quick runs.
func (f *fixture) tenth(n int) int {
	if f.quick {
		return n / 10
	}
	return n
}

// unread measures the same changes while one client follows another user, so that they are recorded.
func (f *fixture) unread(servers group) (measurement, error) {
	var r readers
	defer r.close()
	err := r.connectAll(f.ctx, servers.urls(), len(servers), func(int) string { return changesPath + "?user=nobody" })
	if err != nil {
		return measurement{}, err
	}
	return servers.withCPU(func() (measurement, error) {
		changes, err := f.change(f.ctx, servers.urls(), 10*time.Second)
		return measurement{units: float64(len(changes))}, err
	})
}

// deliver changes users and measures when the readers get that.
func (f *fixture) deliver(ctx context.Context, servers group, r *readers, d time.Duration) (measurement, error) {
	r.take()
	m, err := servers.withCPU(func() (measurement, error) {
		begun := time.Now()
		changes, err := f.change(ctx, servers.urls(), 5*d)
		if err != nil {
			return measurement{}, err
		}
		expected := 0
		for _, place := range changes {
			expected += int(r.watching[place])
		}
		elapsed := time.Since(begun)
		if err := pause(ctx, 2*time.Second); err != nil { // for the last ones
			return measurement{}, err
		}
		lags := r.take()
		slices.Sort(lags)
		switch {
		case r.open.Load() < int64(f.readers()):
			err = fmt.Errorf("servers ended %d connections", f.readers()-int(r.open.Load()))
		case len(lags) < expected*9/10: // a ping and a leave can merge when they are late
			err = fmt.Errorf("%d of %d changes arrived, half of them after %s", len(lags), expected, middle(lags))
		}
		if len(lags) == 0 {
			return measurement{}, errTooFew
		}
		return measurement{
			units: float64(len(lags)), elapsed: elapsed, p50: middle(lags), p99: lags[len(lags)*99/100],
			command: fmt.Sprintf("%d readers of %d users each; %d users pinging or leaving a second, %d a request",
				f.readers(), deliveryWatched, f.tenth(deliveryRate), deliveryBatch),
			note: fmt.Sprintf("%.1f %% of %d expected changes arrived, the last after %s; %d changes written; ",
				100*float64(len(lags))/float64(expected), expected, lags[len(lags)-1].Round(time.Millisecond),
				len(changes)),
		}, err
	})
	return m, err
}

func middle(sorted []time.Duration) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

// change lets random users ping, and then leave, for a time, at deliveryRate. It returns the places of the
// users of all these changes.
func (f *fixture) change(ctx context.Context, urls []string, d time.Duration) (changes []int, err error) {
	pairs := float64(f.tenth(deliveryRate)) / deliveryBatch / 2 // of a batch of pings and one of leaves, each second
	batches, stay := int(d.Seconds()*pairs), int(deliveryStay.Seconds()*pairs)
	chosen := rand.Perm(f.ids.len())[:batches*deliveryBatch]
	begun := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range batches + stay {
		due := begun.Add(time.Duration(float64(i) / pairs * float64(time.Second)))
		if pause(groupCtx, time.Until(due)) != nil {
			break // the group has the error
		}
		url := urls[i%len(urls)] + "/v1/namespaces/" + feedNS
		send := func(kind string, batch int) {
			places := chosen[batch*deliveryBatch:][:deliveryBatch]
			changes = append(changes, places...)
			group.Go(func() error { return f.sendBatch(groupCtx, url+"/"+kind, kind, places) })
		}
		if i < batches {
			send("pings", i)
		}
		if i >= stay {
			send("leaves", i-stay)
		}
	}
	err = group.Wait()
	if took := time.Since(begun); err == nil && took > d+d/10+2*time.Second {
		err = fmt.Errorf("%d changes took %s: the load is too much for this machine", len(changes), took)
	}
	return changes, err
}

// sendBatch lets users ping or leave in one request.
func (f *fixture) sendBatch(ctx context.Context, url, kind string, places []int) error {
	var b bytes.Buffer
	for i, place := range places {
		before := map[bool]string{true: `{"` + kind + `":[`, false: ","}[i == 0]
		b.WriteString(before + `{"user":"` + f.ids.id(place) + `"}`)
	}
	b.WriteString("]}")
	status, body, err := do(ctx, "POST", url, "Content-Type: application/json", b.Bytes())
	if err == nil && status != 200 {
		err = fmt.Errorf("POST %s: %d %.400s", url, status, body)
	}
	return err
}
