//go:build unix

package calls

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// BenchmarkGoingOn keeps calls going on two servers and one Redis without persistence, for a minute, and reports the
// processor time of each server and of Redis in percent of a processor. The parties of a call are connected to
// different servers, and are active each time that a server asks: more often than in use.
func BenchmarkGoingOn(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchmarkGoingOn(b, n) })
	}
}

func benchmarkGoingOn(b *testing.B, n int) {
	url := redistest.StartProcess(b, "--appendonly", "no").URL()
	servers := []*realServer{startReal(b, url), startReal(b, url)}
	for _, s := range servers {
		s.Active = func(string, string, string, time.Duration) bool { return true }
	}
	options, err := redis.ParseURL(url)
	require.NoError(b, err)
	client := redis.NewClient(options)
	defer client.Close()
	beginCalls(b, servers, n)
	time.Sleep(timeout / 2) // until each party was active: what follows is regular
	for b.Loop() {
		began, own, used := time.Now(), ownCPU(b), redistest.CPUTime(b, client)
		time.Sleep(time.Minute)
		percent := 100 / time.Since(began).Seconds()
		b.ReportMetric((ownCPU(b)-own)*percent/float64(len(servers)), "%server")
		b.ReportMetric((redistest.CPUTime(b, client)-used).Seconds()*percent, "%redis")
	}
	for _, s := range servers {
		require.Equal(b, n, s.Stats().Followed, "calls were lost")
	}
}

// beginCalls begins calls that the callees accept. The caller is connected to the one server, the callee to the other.
func beginCalls(b *testing.B, servers []*realServer, n int) {
	each(upTo(n), func(i int) {
		from, to := servers[i%2], servers[(i+1)%2]
		c := store.NewCall{
			ID: fmt.Sprintf("%026d", i), From: fmt.Sprint("from-", i), To: fmt.Sprint("to-", i), Ring: ring,
			Timeout: timeout, Shown: true,
		}
		_, err := from.store.StartCall(b.Context(), ns, c)
		require.NoError(b, err)
		step, err := to.store.StepCall(b.Context(), ns, store.CallAct{ID: c.ID, User: c.To, Action: lastseen.Accept})
		require.NoError(b, err)
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
