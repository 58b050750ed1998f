package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	redisClients  = 8   // connections
	redisPipeline = 8   // commands in progress on each
	redisMembers  = 100 // per command
)

// redisBenchmark measures commands with 100 random members each.
//
// redis-benchmark's random numbers have twelve decimal digits, so its set has as many members of the same length:
// "user" and the number. It cannot increase a score, so it runs repeatedly, for a number of commands each, with later
// and later scores, as pings have.
func (f *fixture) redisBenchmark(commands int, command func(score int64) []string) (measureFunc, error) {
	if _, err := f.filled(coalescing, numberedNS); err != nil {
		return nil, err
	}
	store, err := f.server(redisServer)
	if err != nil {
		return nil, err
	}
	port := store.port
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		return store.withCPU(func() (measurement, error) {
			var sum measurement
			before, err := errorReplies(ctx, port)
			if err != nil {
				return sum, err
			}
			for begun := time.Now(); time.Since(begun) < d; {
				m, err := runRedisBenchmark(ctx, port, commands, f.users, command(time.Now().UnixMilli()))
				if err != nil {
					return sum, err
				}
				sum.units += m.units
				sum.elapsed += m.elapsed
				sum.load += m.load
				sum.command, sum.loadCPUs = m.command, 1
			}
			after, err := errorReplies(ctx, port)
			if err == nil && after != before {
				err = fmt.Errorf("%.0f commands returned an error", after-before)
			}
			return sum, err
		})
	}, nil
}

// members returns "user__rand_int__" a hundred times, each preceded by the arguments.
func members(before ...string) (all []string) {
	for range redisMembers {
		all = append(append(all, before...), "user__rand_int__")
	}
	return all
}

func runRedisBenchmark(ctx context.Context, port string, n, keyspace int, command []string) (measurement, error) {
	args := append([]string{
		"-p", port, "-c", strconv.Itoa(redisClients), "-P", strconv.Itoa(redisPipeline),
		"-n", strconv.Itoa(n), "-r", strconv.Itoa(keyspace), "--csv",
	}, command...)
	output, m, err := runTool(ctx, time.Minute, "redis-benchmark", args...)
	if err != nil {
		return m, err
	}
	perSecond, err := parseRedisBenchmark(string(output))
	if err != nil {
		return m, err
	}
	m.units = float64(n * redisMembers)
	m.elapsed = time.Duration(float64(n) / perSecond * float64(time.Second))
	m.command = strings.Join(strings.Fields(m.command)[:19], " ") + fmt.Sprintf(" … (%d members)", redisMembers)
	return m, nil
}

// parseRedisBenchmark returns the commands per second in the last line.
func parseRedisBenchmark(output string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	record, err := csv.NewReader(strings.NewReader(lines[len(lines)-1])).Read()
	if err != nil || len(record) < 2 || len(lines) < 2 {
		return 0, fmt.Errorf("redis-benchmark printed %.300q", output)
	}
	perSecond, err := strconv.ParseFloat(record[1], 64)
	if err != nil || perSecond <= 0 {
		return 0, fmt.Errorf("redis-benchmark printed %.300q", output)
	}
	return perSecond, nil
}

// errorReplies returns how many errors Redis has returned so far. redis-benchmark counts them as successes.
func errorReplies(ctx context.Context, port string) (float64, error) {
	info, _, err := runTool(ctx, time.Minute, "redis-cli", "-p", port, "info", "stats")
	if err != nil {
		return 0, err
	}
	return numberAfter(info, "total_error_replies:")
}
