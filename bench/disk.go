package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// How pings come while the disk is watched: so many a second, of so many users a request.
const (
	diskRate  = 50_000
	diskBatch = 1000
)

// diskPerPing pings at a fixed rate and looks at how much was written. It takes long enough for the log
// for a compaction.
//
// What counts is what the program hands to the kernel, which syncs every page of it. write_bytes in /proc
// would be twice that on file systems that keep several pages together: then it counts all of them, while
// the device gets those that changed.
func (l *lab) diskPerPing(ctx context.Context, _ time.Duration) (measurement, error) {
	s, err := l.launchBinary("disk", l.path("disk.db"))
	if err != nil {
		return measurement{}, err
	}
	defer s.stop()
	if err := l.fill(s, crowd); err != nil {
		return measurement{}, err
	}
	if _, err := s.settled(ctx, func() (float64, error) { w, err := writtenBy(s.pid()); return w.calls, err }); err != nil {
		return measurement{}, err
	}
	before, err := writtenBy(s.pid())
	if err != nil {
		return measurement{}, err
	}
	length := 45 * time.Second
	if l.quick {
		length = 5 * time.Second
	}
	m, err := s.account(func() (measurement, error) { return l.pace(ctx, s, length) })
	if err != nil {
		return m, err
	}
	if err := pause(ctx, 3*time.Second); err != nil { // for the last flush
		return m, err
	}
	after, err := writtenBy(s.pid())
	calls, disk := after.calls-before.calls, after.disk-before.disk
	if err == nil && disk == 0 {
		err = errors.New("nothing was written to a disk: choose another -dir")
	}
	m.value = calls / m.units
	m.note = fmt.Sprintf("%.0f pings in %s, of %d users; %.0f MiB written, compaction included; write_bytes says %.0f MiB",
		m.units, m.elapsed.Round(time.Second), l.users, calls/mebibyte, disk/mebibyte)
	return m, err
}

// pace sends bulk pings at diskRate.
func (l *lab) pace(ctx context.Context, s *server, length time.Duration) (measurement, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	begun := time.Now()
	n := int(length.Seconds() * diskRate / diskBatch)
	for i := range n {
		due := begun.Add(time.Duration(i) * time.Second * diskBatch / diskRate)
		if err := pause(ctx, time.Until(due)); err != nil {
			break // the group knows why
		}
		group.Go(func() error {
			body := l.batch() // anew each time: the same few batches again would be pings of fewer users
			url := s.url + "/v1/namespaces/" + crowd + "/pings"
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			request.Header.Set("Content-Type", "application/json")
			return sendPings(request, diskBatch)
		})
	}
	err := group.Wait()
	m := measurement{
		units: float64(n * diskBatch), elapsed: time.Since(begun),
		command: fmt.Sprintf("lastseen --store FILE; bulk pings of %d random users, %d pings/s; wchar in /proc", diskBatch, diskRate),
	}
	if err == nil && m.rate() < 0.97*diskRate {
		err = fmt.Errorf("of %d pings a second only %.0f were answered", diskRate, m.rate())
	}
	return m, err
}

// batch is a bulk ping of random users.
func (l *lab) batch() []byte {
	body := []byte(`{"pings":[`)
	for i := range diskBatch {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"user":%q}`, l.ids.some())
	}
	return append(body, "]}"...)
}
