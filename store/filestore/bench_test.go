package filestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const benchUsers = 1_000_000

// benchUser returns one of a million IDs of 16 bytes.
func benchUser(n int) string { return fmt.Sprintf("%016x", uint64(n)*0x9E3779B97F4A7C15) }

// filled returns the path of a data file with a million users.
func filled(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "lastseen.db") // on a disk
	s, err := Open(Options{Path: path, Sync: DefaultSync, Logger: quiet()})
	require.NoError(b, err)
	batch := make([]store.Sighting, 0, 10_000)
	for n := range benchUsers {
		batch = append(batch, store.Sighting{User: benchUser(n), At: base + lastseen.Instant(rand.IntN(300_000))})
		if len(batch) == cap(batch) {
			_, err := s.Ping(context.Background(), "chat", batch)
			require.NoError(b, err)
			batch = batch[:0]
		}
	}
	require.NoError(b, s.Close())
	return path
}

// BenchmarkOpen loads a million users.
func BenchmarkOpen(b *testing.B) {
	path := filled(b)
	for b.Loop() {
		s, err := Open(Options{Path: path, Sync: DefaultSync, Logger: quiet()})
		require.NoError(b, err)
		require.NoError(b, s.Close())
	}
}

// contactIDs returns n IDs of 32 bytes, in bytewise order.
func contactIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("user-%027d", i)
	}
	return ids
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkFeed pings a store of few users, where a ping costs least, without and with a feed, and sweeps it.
func BenchmarkFeed(b *testing.B) {
	ctx := context.Background()
	s := open(b, Options{Path: newPath(b), Sync: DefaultSync})
	require.NoError(b, s.Register(ctx, []string{"chat"}))
	record := func() { require.NoError(b, s.RecordChanges(ctx, "chat", minutes)) }
	write := func(write func(context.Context, string, []store.Sighting) ([]lastseen.State, error)) {
		user := benchUser(rand.IntN(store.MaxSweep))
		_, err := write(ctx, "chat", []store.Sighting{{User: user, At: lastseen.InstantOf(time.Now())}})
		if err != nil {
			b.Fatal(err)
		}
	}
	pings := func(b *testing.B) {
		for b.Loop() {
			write(s.Ping)
		}
	}
	b.Run("ping/off", pings)
	record()
	b.Run("ping/on", pings)
	b.Run("change/on", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			if n%2 == 0 {
				write(s.Leave)
			} else {
				write(s.Ping)
			}
		}
	})
	require.NoError(b, s.DeleteNamespace(ctx, "chat"))
	b.Run("sweep of 1000", func(b *testing.B) {
		for n := lastseen.Instant(0); b.Loop(); n++ {
			b.StopTimer()
			record()
			begun := base + n
			batch := make([]store.Sighting, store.MaxSweep)
			for i := range batch {
				batch[i] = store.Sighting{User: benchUser(i), At: begun.Add(-minutes.Green) + 1}
			}
			s.mu.Lock()
			s.index.feeds.byName["chat"].watermark = begun
			s.mu.Unlock()
			_, err := s.Ping(ctx, "chat", batch)
			require.NoError(b, err)
			w := &store.ChangesSweep{Namespace: "chat", Thresholds: minutes, Now: begun + 1}
			b.StartTimer()
			s.SweepChanges(ctx, []*store.ChangesSweep{w})
			require.Equal(b, store.MaxSweep, w.Decays)
		}
	})
}

// describable returns a store of 100,000 users, and some of them say something.
func describable(b *testing.B, every int) *Store {
	b.Helper()
	s, err := Open(Options{Path: filepath.Join(b.TempDir(), "lastseen.db"), Sync: time.Hour, Logger: quiet()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	batch := make([]store.Sighting, 100_000)
	for n := range batch {
		batch[n] = store.Sighting{User: benchUser(n), At: base}
	}
	_, err = s.Ping(context.Background(), "chat", batch)
	require.NoError(b, err)
	for n := 0; every > 0 && n < len(batch); n += every {
		s.mu.Lock()
		s.index.say("chat", benchUser(n), lastseen.Said{
			Availability: lastseen.Busy, Note: fmt.Sprint("in a meeting with ", n), Until: base + lastseen.Instant(n),
		})
		s.mu.Unlock()
	}
	return s
}

// BenchmarkDescribe looks up 100 users. None, every tenth, or all of them say something. It reports the median time of
// Lookup divided by that of Describe.
func BenchmarkDescribe(b *testing.B) {
	ids := make([]string, 100_000)
	for n := range ids {
		ids[n] = benchUser(n)
	}
	for _, every := range []int{0, 10, 1} {
		b.Run(fmt.Sprint("every=", every), func(b *testing.B) {
			s, users := describable(b, every), make([]string, 100)
			var lookups, describes []time.Duration
			for b.Loop() {
				for i := range users { // every tenth of them is every tenth of all
					users[i] = ids[rand.IntN(len(ids)/10)*10+i%10]
				}
				begun := time.Now()
				_, err := s.Lookup(context.Background(), "chat", users)
				lookups = append(lookups, time.Since(begun))
				require.NoError(b, err)
				for i := range users {
					users[i] = ids[rand.IntN(len(ids)/10)*10+i%10]
				}
				begun = time.Now()
				_, _, err = s.Describe(context.Background(), "chat", users)
				describes = append(describes, time.Since(begun))
				require.NoError(b, err)
			}
			slices.Sort(lookups)
			slices.Sort(describes)
			lookup, describe := lookups[len(lookups)/2], describes[len(describes)/2]
			b.ReportMetric(float64(lookup.Nanoseconds()), "ns/Lookup")
			b.ReportMetric(float64(describe.Nanoseconds()), "ns/Describe")
			b.ReportMetric(float64(lookup)/float64(describe), "Lookup/Describe")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkDevices compares what a ping costs without a device and with one, by the number of the user's devices, and
// reports the memory of a user.
func BenchmarkDevices(b *testing.B) {
	ctx := context.Background()
	const users = 100_000
	for devices := range 4 {
		b.Run(fmt.Sprint(devices), func(b *testing.B) {
			s := open(b, Options{Path: newPath(b), Sync: DefaultSync})
			at := base
			write := func(user, device int) {
				at++
				name := benchUser(user)
				var err error
				if devices == 0 {
					_, err = s.Ping(ctx, "chat", []store.Sighting{{User: name, At: at}})
				} else {
					_, err = s.RecordDevices(ctx, "chat", 150*time.Second, []store.DeviceSighting{{
						User: name, ID: fmt.Sprintf("%016x~%08d", user, device), Kind: lastseen.Web, At: at,
					}})
				}
				require.NoError(b, err)
			}
			before := float64(heapInUse())
			for user := range users {
				for device := range max(1, devices) {
					write(user, device)
				}
			}
			used := float64(heapInUse()) - before
			for b.Loop() {
				write(rand.IntN(users), rand.IntN(max(1, devices)))
			}
			b.ReportMetric(used/users, "B/user")
		})
	}
}
