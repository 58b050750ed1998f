package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// openNew opens a store on a new Redis.
func openNew(t testing.TB, o Options) *Store {
	t.Helper()
	o.URL, o.Logger = redistest.Start(t), slog.New(slog.DiscardHandler)
	o.Timeout, o.DialTimeout = time.Minute, time.Minute
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// BenchmarkPingHidden measures pings in a namespace without hidden times, while another user is hidden, and while one
// of the pinged users is; and Redis' CPU time.
func BenchmarkPingHidden(b *testing.B) {
	for _, kind := range []string{"without", "another", "one"} {
		for _, size := range []int{1, 32} {
			b.Run(kind+"/"+strconv.Itoa(size), func(b *testing.B) { benchmarkHidden(b, kind, size) })
		}
	}
}

func benchmarkHidden(b *testing.B, kind string, size int) {
	ctx, s := context.Background(), openNew(b, Options{})
	now, err := s.Now(ctx)
	require.NoError(b, err)
	batch := make([]store.PresenceEvent, size)
	for i := range batch {
		batch[i] = store.PresenceEvent{User: fmt.Sprint("user", i), At: now}
	}
	_, err = s.Ping(ctx, "chat", batch)
	require.NoError(b, err)
	if user := map[string]string{"another": "x", "one": "user0"}[kind]; user != "" {
		_, err = s.SetAvailability(ctx, "chat", user, lastseen.AvailabilityState{Availability: lastseen.Invisible}, now)
		require.NoError(b, err)
	}
	before, pings := redisCPU(b, s), 0
	for b.Loop() {
		now, _ = s.Now(ctx)
		pings += size
		for i := range batch {
			batch[i].At = now
		}
		if _, err := s.Ping(ctx, "chat", batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((redisCPU(b, s)-before)/float64(pings), "redis-µs/ping")
}

// BenchmarkDescribe measures lookups of 100 users, of whom none, every tenth or each has an availability.
func BenchmarkDescribe(b *testing.B) {
	for _, every := range []int{0, 10, 1} {
		b.Run(fmt.Sprint("every", every), func(b *testing.B) {
			ctx, s := context.Background(), openNew(b, Options{})
			now, err := s.Now(ctx)
			require.NoError(b, err)
			users := make([]string, 100)
			for i := range users {
				users[i] = fmt.Sprint("user", i)
				_, err = s.Ping(ctx, "chat", []store.PresenceEvent{{User: users[i], At: now}})
				require.NoError(b, err)
				if every > 0 && i%every == 0 {
					busy := lastseen.AvailabilityState{Availability: lastseen.Busy}
					_, err = s.SetAvailability(ctx, "chat", users[i], busy, now)
					require.NoError(b, err)
				}
			}
			before := redisCPU(b, s)
			for b.Loop() {
				if _, _, err := s.Describe(ctx, "chat", users); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((redisCPU(b, s)-before)/float64(b.N), "redis-µs/lookup")
		})
	}
}

// BenchmarkPingFeed measures a ping that changes no status, with the feed off and on, and Redis' CPU time.
func BenchmarkPingFeed(b *testing.B) {
	for _, name := range []string{"off", "on"} {
		b.Run(name, func(b *testing.B) { benchmarkPing(b, name == "on") })
	}
}

func benchmarkPing(b *testing.B, recorded bool) {
	ctx := context.Background()
	s := openNew(b, Options{})
	now, err := s.Now(ctx)
	require.NoError(b, err)
	batch := make([]store.PresenceEvent, 512)
	now -= 12 * lastseen.Instant(time.Hour.Milliseconds()) // pings are faster than time
	for i := range batch {
		batch[i] = store.PresenceEvent{User: fmt.Sprint("user", i), At: now}
	}
	_, err = s.Ping(ctx, "chat", batch)
	require.NoError(b, err)
	if recorded {
		days := lastseen.Thresholds{Green: 24 * time.Hour, Yellow: 48 * time.Hour}
		require.NoError(b, s.RecordChanges(ctx, "chat", days))
	}
	for _, size := range []int{1, 16, 512} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			before, pings := redisCPU(b, s), 0
			for b.Loop() {
				now++
				pings += size
				for i := range batch[:size] {
					batch[i].At = now
				}
				if _, err := s.Ping(ctx, "chat", batch[:size]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((redisCPU(b, s)-before)/float64(pings), "redis-µs/ping")
		})
	}
}

// redisCPU returns how many microseconds of CPU time Redis has used.
func redisCPU(b *testing.B, s *Store) (us float64) {
	b.Helper()
	return redistest.CPUTime(b, s.client).Seconds() * 1e6
}

// BenchmarkCalls measures a whole call, keepalives of as many calls as fit, and expiring as many; and Redis'
// CPU time.
func BenchmarkCalls(b *testing.B) {
	b.Run("call", benchmarkCall)
	b.Run("keepalive", benchmarkKeepAlive)
	b.Run("expire", benchmarkExpire)
}

func newCall(i int, from, to string) store.NewCall {
	return store.NewCall{
		ID: fmt.Sprintf("%026d", i), From: from, To: to, Ring: time.Hour, Timeout: time.Hour, Shown: true,
	}
}

// benchmarkCall starts a call, accepts it, and ends it. The calls that are kept would be too many.
func benchmarkCall(b *testing.B) {
	ctx, s := context.Background(), openNew(b, Options{})
	before, calls := redisCPU(b, s), 0
	for b.Loop() {
		from, to := fmt.Sprint("from", calls), fmt.Sprint("to", calls)
		n := newCall(calls, from, to)
		_, err := s.StartCall(ctx, "chat", n)
		require.NoError(b, err)
		for _, action := range []lastseen.CallAction{lastseen.Accept, lastseen.End} {
			_, err := s.StepCall(ctx, "chat", store.CallAct{ID: n.ID, User: to, Action: action})
			require.NoError(b, err)
		}
		calls++
	}
	b.ReportMetric((redisCPU(b, s)-before)/float64(calls), "redis-µs/call")
}

func benchmarkKeepAlive(b *testing.B) {
	ctx, s := context.Background(), openNew(b, Options{})
	var alive []store.KeepAlive
	for i := range store.MaxCallBatch / 2 {
		n := newCall(i, fmt.Sprint("from", i), fmt.Sprint("to", i))
		_, err := s.StartCall(ctx, "chat", n)
		require.NoError(b, err)
		_, err = s.StepCall(ctx, "chat", store.CallAct{ID: n.ID, User: n.To, Action: lastseen.Accept})
		require.NoError(b, err)
		alive = append(alive, store.KeepAlive{User: n.From}, store.KeepAlive{User: n.To})
	}
	before, rounds := redisCPU(b, s), 0
	for b.Loop() {
		_, err := s.KeepCallsAlive(ctx, "chat", alive)
		require.NoError(b, err)
		rounds++
	}
	b.ReportMetric((redisCPU(b, s)-before)/float64(rounds), "redis-µs/batch")
}

func benchmarkExpire(b *testing.B) {
	ctx, s := context.Background(), openNew(b, Options{})
	spent := 0.0
	rounds := 0
	for b.Loop() {
		b.StopTimer()
		for i := range store.MaxCallBatch {
			n := newCall(i, fmt.Sprint("from", i), fmt.Sprint("to", i))
			n.Timeout = time.Millisecond
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

// BenchmarkRecordDevices measures the refresh of a record, for users with 1 and 3 devices, and Redis' CPU time. Compare
// it with BenchmarkPingFeed.
func BenchmarkRecordDevices(b *testing.B) {
	for _, devices := range []int{1, 3} {
		b.Run(strconv.Itoa(devices), func(b *testing.B) { benchmarkDevices(b, devices) })
	}
}

func benchmarkDevices(b *testing.B, devices int) {
	ctx := context.Background()
	s := openNew(b, Options{})
	now, err := s.Now(ctx)
	require.NoError(b, err)
	const window = time.Hour
	batch := make([]store.DeviceEvent, 1024)               // smaller hashes are stored in a different way
	now -= 12 * lastseen.Instant(time.Hour.Milliseconds()) // pings are faster than time
	for d := range devices {
		for i := range batch {
			batch[i] = store.DeviceEvent{
				User: fmt.Sprint("user", i), ID: fmt.Sprint("device", d, "~abcdefgh"), Kind: lastseen.Web, At: now,
			}
		}
		_, err = s.RecordDevices(ctx, "chat", window, batch)
		require.NoError(b, err)
	}
	for _, size := range []int{1, 16, 512} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			before, pings := redisCPU(b, s), 0
			for b.Loop() {
				now++
				pings += size
				for i := range batch[:size] {
					batch[i].At = now
				}
				if _, err := s.RecordDevices(ctx, "chat", window, batch[:size]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((redisCPU(b, s)-before)/float64(pings), "redis-µs/ping")
		})
	}
}
