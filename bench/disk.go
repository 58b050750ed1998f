package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	diskRate  = 50_000 // pings per second
	diskBatch = 1000   // pings per request
)

// diskPerPing pings at a fixed rate, long enough for a compaction, and measures how much is written.
//
// It counts what the program passes to the kernel, which syncs every page of it. On some file systems write_bytes in
// /proc is about twice that: it counts all pages that the kernel keeps together; the device gets those that changed.
func (f *fixture) diskPerPing(ctx context.Context, s *server) (measurement, error) {
	if err := f.fill(s, randomNS); err != nil {
		return measurement{}, err
	}
	written := func() (float64, error) { calls, _, err := writtenBy(s.pid()); return calls, err }
	if _, err := waitSettled(ctx, written); err != nil {
		return measurement{}, err
	}
	callsBefore, diskBefore, err := writtenBy(s.pid())
	if err != nil {
		return measurement{}, err
	}
	length := 45 * time.Second
	if f.quick {
		length = 5 * time.Second
	}
	m, err := s.withCPU(func() (measurement, error) { return f.pace(ctx, s, length) })
	if err != nil {
		return m, err
	}
	if err := pause(ctx, 3*time.Second); err != nil { // for the last flush
		return m, err
	}
	calls, disk, err := writtenBy(s.pid())
	calls, disk = calls-callsBefore, disk-diskBefore
	if err == nil && disk == 0 {
		err = errors.New("nothing was written to a disk: choose another -dir")
	}
	m.value = calls / m.units
	const note = "%.0f pings in %s, of %d users; %.0f MiB written, compaction included; write_bytes says %.0f MiB"
	m.note = fmt.Sprintf(note, m.units, m.elapsed.Round(time.Second), f.users, calls/mebibyte, disk/mebibyte)
	return m, err
}

// pace sends bulk pings at diskRate.
func (f *fixture) pace(ctx context.Context, s *server, length time.Duration) (measurement, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	begun := time.Now()
	n := int(length.Seconds() * diskRate / diskBatch)
	for i := range n {
		due := begun.Add(time.Duration(i) * time.Second * diskBatch / diskRate)
		if err := pause(ctx, time.Until(due)); err != nil {
			break // the group has the error
		}
		group.Go(func() error { // new random users each time: repeated batches would reach fewer users
			return sendPings(ctx, s.url, randomNS, "application/json", f.batch(), diskBatch)
		})
	}
	err := group.Wait()
	m := measurement{
		units: float64(n * diskBatch), elapsed: time.Since(begun),
		command: fmt.Sprintf("lastseen --store FILE; bulk pings of %d random users, %d pings/s; wchar in /proc",
			diskBatch, diskRate),
	}
	if err == nil && m.rate() < 0.97*diskRate {
		err = fmt.Errorf("only %.0f of %d pings a second succeeded", m.rate(), diskRate)
	}
	return m, err
}

// batch returns a bulk ping of random users.
func (f *fixture) batch() []byte {
	pings := make([]string, diskBatch)
	for i := range pings {
		pings[i] = `{"user":"` + f.ids.random() + `"}`
	}
	return []byte(`{"pings":[` + strings.Join(pings, ",") + `]}`)
}
