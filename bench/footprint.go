package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

const mebibyte = 1 << 20

// allocations counts with the Go benchmark in package api.
func allocations(ctx context.Context, _ time.Duration) (measurement, error) {
	output, m, err := runTool(ctx, 5*time.Minute, "go", "test", "-C", "..",
		"-run", "^$", "-bench", "^BenchmarkPingAllocations$", "-benchtime", "1x", "./api")
	if err != nil {
		return m, err
	}
	found := regexp.MustCompile(`([0-9.]+) ping-allocs/op`).FindSubmatch(output)
	if found == nil {
		return m, fmt.Errorf("go test printed %.300s", output)
	}
	m.value, err = strconv.ParseFloat(string(found[1]), 64)
	return m, err
}

// memoryPerUser fills an empty store and measures how much memory that took.
func (f *fixture) memoryPerUser(ctx context.Context, s *server) (measurement, error) {
	if err := sendLines(ctx, s.url, randomNS, f.ids.lines(0, 1, 1, nil), 1); err != nil {
		return measurement{}, err
	}
	before, err := memory(s.pid(), "RssAnon")
	if err != nil {
		return measurement{}, err
	}
	if err := f.fill(s, manyNS); err != nil {
		return measurement{}, err
	}
	after, err := waitSettled(ctx, func() (float64, error) { return memory(s.pid(), "RssAnon") })
	if err != nil {
		return measurement{}, err
	}
	peak, err := memory(s.pid(), "VmHWM")
	return measurement{
		value:   (after - before) / float64(f.many),
		command: fmt.Sprintf("lastseen --store FILE; %d users by NDJSON; RssAnon in /proc before and after", f.many),
		note: fmt.Sprintf("GOGC 50, as the program sets it; RssAnon %.0f MiB before and %.0f MiB after; VmHWM %.0f MiB",
			before/mebibyte, after/mebibyte, peak/mebibyte),
	}, err
}

// waitSettled waits until a number changes by at most one percent in five seconds, or for a minute, and returns it.
func waitSettled(ctx context.Context, read func() (float64, error)) (float64, error) {
	old, err := read()
	for range 12 {
		if err := pause(ctx, 5*time.Second); err != nil {
			return 0, err
		}
		now, err := read()
		if err != nil {
			return 0, err
		}
		if now >= 0.99*old && now <= 1.01*old {
			return now, nil
		}
		old = now
	}
	return old, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// idle measures the memory of a server that has recorded one ping and has nothing else to do.
func (f *fixture) idle(ctx context.Context, s *server) (measurement, error) {
	if err := sendLines(ctx, s.url, "idle", f.ids.lines(0, 1, 1, nil), 1); err != nil {
		return measurement{}, err
	}
	if err := pause(ctx, 5*time.Second); err != nil {
		return measurement{}, err
	}
	rss, err := memory(s.pid(), "VmRSS")
	return measurement{value: rss / mebibyte, command: "lastseen --store STORE; one ping; VmRSS 5 s later"}, err
}

// soak pings the program on Redis at half of its highest rate and measures how its memory grows after the first minute.
func (f *fixture) soak(ctx context.Context, s *server) (measurement, error) {
	if err := f.fill(s, randomNS); err != nil {
		return measurement{}, err
	}
	half, err := f.halfRate(ctx, s)
	if err != nil {
		return measurement{}, err
	}
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	samples := s.sampleMemory(sampling)
	length := 5 * time.Minute
	if f.quick {
		length = 30 * time.Second
	}
	m, err := s.withCPU(func() (measurement, error) { return f.openLoop(ctx, s, openPing(), half, length) })
	if err != nil {
		return m, err
	}
	stop()
	err = memoryGrowth(&m, <-samples)
	return m, err
}

// sampleMemory collects the server's memory once a second until the context ends.
func (s *server) sampleMemory(ctx context.Context) <-chan []float64 {
	result := make(chan []float64, 1)
	go func() {
		var samples []float64
		for pause(ctx, time.Second) == nil {
			if rss, err := memory(s.pid(), "VmRSS"); err == nil {
				samples = append(samples, rss)
			}
		}
		result <- samples
	}()
	return result
}

// memoryGrowth sets the growth in percent from the tenth of the samples after the first fifth to the last tenth. In
// five minutes, these are the half minute after the first minute and the last half minute.
func memoryGrowth(m *measurement, samples []float64) error {
	n := len(samples)
	if n < 10 {
		return fmt.Errorf("there are %d samples of the memory, 10 are required", n)
	}
	early, late := median(samples[n/5:n/5+n/10+1]), median(samples[n-n/10-1:])
	m.value = 100 * (late - early) / early
	m.note = fmt.Sprintf("RSS %.1f MiB after a fifth of the time, %.1f MiB at the end; %.0f pings/s",
		early/mebibyte, late/mebibyte, m.rate())
	return nil
}
