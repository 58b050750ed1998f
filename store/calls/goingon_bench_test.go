package calls

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// BenchmarkGoingOn keeps calls going on two servers and one Redis for a minute, and reports which part of a processor
// that takes: of each server, and of Redis. Every party is heard each time that a server asks.
func BenchmarkGoingOn(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchmarkGoingOn(b, n) })
	}
}

func benchmarkGoingOn(b *testing.B, n int) {
	url := redistest.StartProcess(b, "--appendonly", "no").URL()
	servers := []*realServer{startReal(b, url), startReal(b, url)}
	for _, s := range servers {
		s.Heard = func(string, string, string, time.Duration) bool { return true }
	}
	options, err := redis.ParseURL(url)
	require.NoError(b, err)
	client := redis.NewClient(options)
	defer client.Close()
	began := time.Now()
	beginCalls(b, servers, n)
	b.Log("began", time.Since(began))
	time.Sleep(20 * time.Second) // until each party was heard as often as it is from then on
	for b.Loop() {
		own, of := ownCPU(b), redisCPU(b, client)
		from, before := time.Now(), client.Info(b.Context(), "commandstats").Val()
		time.Sleep(time.Minute)
		elapsed := time.Since(from).Seconds()
		b.ReportMetric((ownCPU(b)-own)/elapsed/2*100, "%server")
		b.ReportMetric((redisCPU(b, client)-of)/elapsed*100, "%redis")
		if false {
			b.Log(before)
		}
		if false {
			b.Log(client.Info(b.Context(), "commandstats").Val())
		}
	}
	for _, s := range servers {
		require.Equal(b, n, s.Stats().Followed)
		b.Log(fmt.Sprintf("%+v", s.Stats()))
	}
}

// beginCalls begins calls that the callee accepts. The caller is connected to the one server, the callee to the other.
func beginCalls(b *testing.B, servers []*realServer, n int) {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	each(all, func(i int) {
		from, to := servers[i%2], servers[(i+1)%2]
		c := store.NewCall{
			ID: fmt.Sprintf("%026d", i), From: fmt.Sprint("from-", i), To: fmt.Sprint("to-", i), Ring: ring,
			Quiet: quiet, Shown: true,
		}
		ctx := context.Background()
		_, err := from.store.StartCall(ctx, ns, c)
		require.NoError(b, err)
		step, err := to.store.StepCall(ctx, ns, store.CallAct{ID: c.ID, User: c.To, Action: lastseen.Accept})
		require.NoError(b, err)
		to.results.copy(ctx, ns, step.InCall)
		from.Follow(ns, c.From, step.Call)
		to.Follow(ns, c.To, step.Call)
	})
}

// ownCPU returns the processor time of this process, in seconds.
func ownCPU(b *testing.B) float64 {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// redisCPU returns the processor time of Redis, in seconds.
func redisCPU(b *testing.B, client *redis.Client) (sum float64) {
	for line := range strings.Lines(client.Info(b.Context(), "cpu").Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			require.NoError(b, err)
			sum += seconds
		}
	}
	return sum
}
