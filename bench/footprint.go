package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// These contestants are measured by numbers of their own, most of them on the program itself with its
// default settings.

const mebibyte = 1 << 20

// allocations has the Go benchmark in package api count.
func (l *lab) allocations(ctx context.Context, _ time.Duration) (measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	args := []string{"test", "-C", l.root, "-run", "^$", "-bench", "^BenchmarkPingAllocations$", "-benchtime", "1x", "./api"}
	output, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return measurement{}, fmt.Errorf("%w: %.300s", err, output)
	}
	found := regexp.MustCompile(`([0-9.]+) own-allocs/op`).FindSubmatch(output)
	if found == nil {
		return measurement{}, fmt.Errorf("go test printed %.300s", output)
	}
	n, err := strconv.ParseFloat(string(found[1]), 64)
	return measurement{value: n, command: commandLine(append([]string{"go"}, args...)), note: "beyond those of a no-op"}, err
}

// memoryPerUser fills an empty store and looks at how much memory that took.
func (l *lab) memoryPerUser(ctx context.Context, _ time.Duration) (measurement, error) {
	s, err := l.launchBinary("memory", l.path("memory.db"))
	if err != nil {
		return measurement{}, err
	}
	defer s.stop()
	if err := sendLines(ctx, s.url, crowd, l.ids.lines(0, 1, nil), 1); err != nil {
		return measurement{}, err
	}
	before, err := memory(s.pid(), "RssAnon")
	if err != nil {
		return measurement{}, err
	}
	n := l.many
	if err := newUsers(n).load(ctx, s.url, many, n, spreadOut(time.Now(), 10*time.Minute, n)); err != nil {
		return measurement{}, err
	}
	after, err := s.settled(ctx, func() (float64, error) { return memory(s.pid(), "RssAnon") })
	if err != nil {
		return measurement{}, err
	}
	peak, err := memory(s.pid(), "VmHWM")
	return measurement{
		value:   (after - before) / float64(n),
		command: fmt.Sprintf("lastseen --store FILE; %d users by NDJSON; RssAnon in /proc before, and after when it has settled", n),
		note: fmt.Sprintf("GOGC 50, as the program sets it; RssAnon %.0f MiB before and %.0f MiB after; at the peak of loading VmHWM %.0f MiB",
			before/mebibyte, after/mebibyte, peak/mebibyte),
	}, err
}

// settled waits until a number has changed by less than one percent in five seconds, a minute at most.
func (s *server) settled(ctx context.Context, read func() (float64, error)) (float64, error) {
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

// idle looks at how much memory a server takes that has answered one ping and has no more to do.
func (l *lab) idle(name, store string) probe {
	return func(ctx context.Context, _ time.Duration) (measurement, error) {
		s, err := l.launchBinary(name, store)
		if err != nil {
			return measurement{}, err
		}
		defer s.stop()
		if err := sendLines(ctx, s.url, "idle", l.ids.lines(0, 1, nil), 1); err != nil {
			return measurement{}, err
		}
		if err := pause(ctx, 5*time.Second); err != nil {
			return measurement{}, err
		}
		rss, err := memory(s.pid(), "VmRSS")
		return measurement{value: rss / mebibyte, command: "lastseen --store STORE; one ping; VmRSS in /proc 5 s later"}, err
	}
}

func makeIdleRedis(l *lab) (probe, error) {
	redis, err := l.server(onRedis)
	if err != nil {
		return nil, err
	}
	return l.idle("idle-redis", "redis://"+redis.url), nil
}

// soak pings the program on Redis for long at half of its highest rate, and looks at how its memory
// grows after the first minute.
func (l *lab) soak(ctx context.Context, _ time.Duration) (measurement, error) {
	redis, err := l.server(onRedis)
	if err != nil {
		return measurement{}, err
	}
	s, err := l.launchBinary("soak", "redis://"+redis.url)
	if err != nil {
		return measurement{}, err
	}
	defer s.stop()
	s.store = redis.process
	if err := l.fill(s, crowd); err != nil {
		return measurement{}, err
	}
	half, err := l.halfRate(ctx, s)
	if err != nil {
		return measurement{}, err
	}
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	samples := s.sample(sampling)
	length := 5 * time.Minute
	if l.quick {
		length = 30 * time.Second
	}
	m, err := s.account(func() (measurement, error) {
		return l.openLoop(ctx, s, "/ping", half, length)
	})
	if err != nil {
		return m, err
	}
	stop()
	err = grown(&m, <-samples)
	return m, err
}

// sample collects the server's memory once a second until the context ends.
func (s *server) sample(ctx context.Context) <-chan []float64 {
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

// grown fills in by how many percent the memory in the last tenth of the time is more than in the tenth
// after the first fifth: of five minutes, the last half minute, and the half minute after the first.
func grown(m *measurement, samples []float64) error {
	n := len(samples)
	if n < 10 {
		return fmt.Errorf("the memory could be read %d times, 10 are needed", n)
	}
	early, late := median(samples[n/5:n/5+n/10+1]), median(samples[n-n/10-1:])
	m.value = 100 * (late - early) / early
	m.note = fmt.Sprintf("RSS %.1f MiB after a fifth of the time, %.1f MiB at the end; %.0f pings/s", early/mebibyte, late/mebibyte, m.rate())
	return nil
}
