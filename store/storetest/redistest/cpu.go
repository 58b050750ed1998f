package redistest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// CPUTime returns the CPU time, user and system, that Redis has used since it started, without that of the processes
// that save its data. The client is one of a single server, not of a Cluster.
func CPUTime(t testing.TB, client redis.UniversalClient) time.Duration {
	t.Helper()
	info, err := client.Info(context.Background(), "cpu").Result()
	check(t, err)
	times := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		times[name] = value
	}
	var sum time.Duration
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(times[name], 64)
		check(t, err)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}
