package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	turningUsers = 100_000 // who turn yellow within a second
	turningBatch = 5000    // of them, who ping in one request
)

// turnYellow sets up users who all turn yellow within a second, and measures the longest command of Redis until all
// did.
func (f *fixture) turnYellow() (measureFunc, error) {
	const green = 15 * time.Second
	servers, err := f.launchFollowed("yellow", 1, "--green", green.String(), "--yellow", "1h", "--ping-interval", "2s",
		"--changes", "on")
	if err != nil {
		return nil, err
	}
	s := servers[0]
	if err := beginFeed(f.ctx, s.url); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + s.store.port, Protocol: 2})
	context.AfterFunc(f.ctx, func() { _ = client.Close() })
	return func(ctx context.Context, _ time.Duration) (measurement, error) {
		begun := time.Now()
		at := evenly(begun, time.Second, turningUsers)
		for first := 0; first < turningUsers; first += turningBatch {
			lines := f.ids.lines(first, first+turningBatch, 1, at)
			err := retry(func() error { return sendLines(ctx, s.url, feedNS, lines, turningBatch) })
			if err != nil {
				return measurement{}, err
			}
		}
		if took := time.Since(begun); took > green-2*time.Second {
			return measurement{}, fmt.Errorf("recording the pings took %s: the load is too much for this machine", took)
		}
		cursor, err := placeOf(ctx, s.url)
		if err != nil {
			return measurement{}, err
		}
		m, err := servers.withCPU(func() (measurement, error) {
			return longestCommand(ctx, client, func() error {
				if err := pause(ctx, time.Until(begun.Add(green))); err != nil {
					return err
				}
				return awaitStatus(ctx, s.url, cursor, "yellow", turningUsers)
			})
		})
		m.note = fmt.Sprintf("%s; for each of them, Redis used %.2f µs, the server %.2f µs", m.note,
			float64(m.store.Microseconds())/turningUsers, float64(m.server.Microseconds())/turningUsers)
		return m, err
	}, nil
}

// longestCommand returns the longest command that Redis executes meanwhile, in milliseconds.
func longestCommand(ctx context.Context, client *redis.Client, meanwhile func() error) (measurement, error) {
	err := errors.Join(
		client.ConfigSet(ctx, "slowlog-log-slower-than", "100").Err(), // µs
		client.ConfigSet(ctx, "slowlog-max-len", "100000").Err(),
		client.Do(ctx, "slowlog", "reset").Err(),
		meanwhile(),
	)
	if err != nil {
		return measurement{}, err
	}
	slow, err := client.SlowLogGet(ctx, -1).Result()
	if err != nil {
		return measurement{}, err
	}
	if len(slow) == 0 {
		return measurement{}, errTooFew
	}
	longest := slices.MaxFunc(slow, func(a, b redis.SlowLog) int { return int(a.Duration - b.Duration) })
	times := make([]float64, len(slow))
	for i, s := range slow {
		times[i] = millis(s.Duration)
	}
	return measurement{
		value:   millis(longest.Duration),
		command: fmt.Sprintf("%d users pinged within a second turn yellow within a second; SLOWLOG GET", turningUsers),
		note: fmt.Sprintf("the longest was %s; %d of more than 0.1 ms, their median %.2f ms", longest.Args[0],
			len(slow), median(times)),
	}, nil
}
