package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// How redis-benchmark is run: connections, and commands on their way on each.
const (
	redisClients  = 8
	redisPipeline = 8
	redisMembers  = 100 // of a command
)

// redisBenchmark returns the probe that has redis-benchmark send commands of 100 random members each.
//
// Its random numbers are decimal and twelve digits long, so its set has as many members as ours, of the
// same length: "user" and the number. It cannot count time up, so it is run again and again, for so many
// commands, each time with a later score, as pings have.
func (l *lab) redisBenchmark(commands int, command func(score int64) []string) (probe, error) {
	store, err := l.server(onRedis)
	if err != nil {
		return nil, err
	}
	ours, err := l.server(merging) // fills the set
	if err != nil {
		return nil, err
	}
	if err := l.fill(ours, numbered); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(store.url, ":")
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		return store.account(func() (measurement, error) {
			var sum measurement
			before, err := errorReplies(ctx, store.url)
			if err != nil {
				return sum, err
			}
			for begun := time.Now(); time.Since(begun) < d; {
				m, err := runRedisBenchmark(ctx, port, commands, l.users, command(time.Now().UnixMilli()))
				if err != nil {
					return sum, err
				}
				sum.units += m.units
				sum.elapsed += m.elapsed
				sum.load += m.load
				sum.command = m.command
			}
			sum.share = sum.load.Seconds() / sum.elapsed.Seconds()
			after, err := errorReplies(ctx, store.url)
			if err == nil && after != before {
				err = fmt.Errorf("%d commands were answered with an error", after-before)
			}
			return sum, err
		})
	}, nil
}

// members writes "user__rand_int__" a hundred times, each after what comes before a member.
func members(before ...string) (all []string) {
	for range redisMembers {
		all = append(append(all, before...), "user__rand_int__")
	}
	return all
}

func runRedisBenchmark(ctx context.Context, port string, n, keyspace int, command []string) (measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := append([]string{
		"-p", port, "-c", strconv.Itoa(redisClients), "-P", strconv.Itoa(redisPipeline),
		"-n", strconv.Itoa(n), "-r", strconv.Itoa(keyspace), "--csv",
	}, command...)
	cmd := exec.CommandContext(ctx, "redis-benchmark", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	output, err := cmd.CombinedOutput()
	if err != nil {
		return measurement{}, fmt.Errorf("redis-benchmark: %w: %.300s", err, output)
	}
	perSecond, err := parseRedisBenchmark(string(output))
	if err != nil {
		return measurement{}, err
	}
	shown := append([]string{"redis-benchmark"}, args[:min(len(args), 18)]...)
	return measurement{
		units:   float64(n * redisMembers),
		elapsed: time.Duration(float64(n) / perSecond * float64(time.Second)),
		load:    cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		command: commandLine(shown) + fmt.Sprintf(" … (%d members)", redisMembers),
	}, nil
}

// parseRedisBenchmark reads the commands a second out of the last line.
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

// errorReplies returns how many errors Redis has answered so far. redis-benchmark takes them for answers.
func errorReplies(ctx context.Context, address string) (int, error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	info, err := client.Info(ctx, "stats").Result()
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(info, "total_error_replies:")
	if !found {
		return 0, errors.New("INFO does not tell of errors")
	}
	number, _, _ := strings.Cut(rest, "\r\n")
	return strconv.Atoi(number)
}
