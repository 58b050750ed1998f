package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// BenchmarkCalls measures a whole call, hearing the parties of as many calls as fit, and expiring as many; and Redis'
// CPU time.
func BenchmarkCalls(b *testing.B) {
	b.Run("call", benchmarkCall)
	b.Run("hear", benchmarkHear)
	b.Run("expire", benchmarkExpire)
}

func newCall(i int, from, to string) store.NewCall {
	return store.NewCall{
		ID: fmt.Sprintf("%026d", i), From: from, To: to, Ring: time.Hour, Quiet: time.Hour, Shown: true,
	}
}

// benchmarkCall starts a call, accepts it, copies, ends it and copies. The calls that are kept would be too many.
func benchmarkCall(b *testing.B) {
	ctx, s := context.Background(), openForBenchmark(b, Options{})
	before, calls := redisCPU(b, s), 0
	for b.Loop() {
		from, to := fmt.Sprint("from", calls), fmt.Sprint("to", calls)
		n := newCall(calls, from, to)
		_, err := s.StartCall(ctx, "chat", n)
		require.NoError(b, err)
		for _, action := range []lastseen.CallAction{lastseen.Accept, lastseen.End} {
			step, err := s.StepCall(ctx, "chat", store.CallAct{ID: n.ID, User: to, Action: action})
			require.NoError(b, err)
			require.NoError(b, s.SetInCalls(ctx, "chat", step.InCall))
			_, err = s.ConfirmInCalls(ctx, "chat", step.InCall)
			require.NoError(b, err)
		}
		calls++
	}
	b.ReportMetric((redisCPU(b, s)-before)/float64(calls), "redis-µs/call")
}

func benchmarkHear(b *testing.B) {
	ctx, s := context.Background(), openForBenchmark(b, Options{})
	var heard []store.CallHeard
	for i := range store.MaxCallBatch / 2 {
		n := newCall(i, fmt.Sprint("from", i), fmt.Sprint("to", i))
		_, err := s.StartCall(ctx, "chat", n)
		require.NoError(b, err)
		_, err = s.StepCall(ctx, "chat", store.CallAct{ID: n.ID, User: n.To, Action: lastseen.Accept})
		require.NoError(b, err)
		heard = append(heard, store.CallHeard{User: n.From}, store.CallHeard{User: n.To})
	}
	before, rounds := redisCPU(b, s), 0
	for b.Loop() {
		_, err := s.HearCalls(ctx, "chat", heard)
		require.NoError(b, err)
		rounds++
	}
	b.ReportMetric((redisCPU(b, s)-before)/float64(rounds), "redis-µs/batch")
}

func benchmarkExpire(b *testing.B) {
	ctx, s := context.Background(), openForBenchmark(b, Options{})
	spent := 0.0
	rounds := 0
	for b.Loop() {
		b.StopTimer()
		for i := range store.MaxCallBatch {
			n := newCall(i, fmt.Sprint("from", i), fmt.Sprint("to", i))
			n.Quiet = time.Millisecond
			_, err := s.StartCall(ctx, "chat", n)
			require.NoError(b, err)
			_, err = s.StepCall(ctx, "chat", store.CallAct{ID: n.ID, User: n.To, Action: lastseen.Accept})
			require.NoError(b, err)
		}
		before := redisCPU(b, s)
		b.StartTimer()
		expired, err := s.ExpireCalls(ctx, "chat")
		b.StopTimer()
		require.NoError(b, err)
		require.Greater(b, len(expired.Steps), store.MaxCallBatch/2)
		spent, rounds = spent+redisCPU(b, s)-before, rounds+1
		require.NoError(b, s.DeleteNamespace(ctx, "chat"))
		b.StartTimer()
	}
	b.ReportMetric(spent/float64(rounds), "redis-µs/batch")
}
