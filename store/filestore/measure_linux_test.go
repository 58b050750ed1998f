package filestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// usage is what this process has used so far.
type usage struct {
	written int64 // bytes handed to the kernel, by /proc
	cpu     time.Duration
}

func used(b *testing.B) (u usage) {
	b.Helper()
	io, err := os.ReadFile("/proc/self/io")
	require.NoError(b, err)
	_, err = fmt.Sscanf(string(io), "rchar: %d\nwchar: %d", new(int64), &u.written)
	require.NoError(b, err)
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return u
}

// pingPaced sends bulk pings of 1,000 random users, 62,500 pings a second, and reports what one ping took.
func pingPaced(b *testing.B, s *Store, namespace string, users int, batches int) {
	b.Helper()
	before, at := used(b), lastseen.InstantOf(time.Now())
	tick := time.NewTicker(16 * time.Millisecond)
	defer tick.Stop()
	batch := make([]store.PresenceEvent, 1000)
	for n := range batches {
		<-tick.C
		for i := range batch {
			batch[i] = store.PresenceEvent{User: benchUser(rand.IntN(users)), At: at + lastseen.Instant(n)}
		}
		_, err := s.Ping(context.Background(), namespace, batch)
		require.NoError(b, err)
	}
	time.Sleep(2 * time.Second) // the last flush, and background work
	after := used(b)
	pings := float64(batches * len(batch))
	b.ReportMetric(float64(after.written-before.written)/pings, "B/ping")
	b.ReportMetric(float64((after.cpu-before.cpu).Nanoseconds())/pings, "cpu-ns/ping")
	b.ReportMetric(0, "ns/op")
}

func reportSizes(b *testing.B, s *Store) {
	b.Helper()
	info, err := os.Stat(s.Path())
	require.NoError(b, err)
	b.ReportMetric(float64(info.Size())/1e6, "MB-file")
	b.ReportMetric(float64(kit.HeapInUse())/1e6, "MB-heap")
}

// BenchmarkOpen loads a million users, and counts processor time, too.
func BenchmarkOpen(b *testing.B) {
	path := filled(b)
	before := used(b)
	for b.Loop() {
		s, err := Open(Options{Path: path, Sync: defaultSync, Logger: quiet()})
		require.NoError(b, err)
		require.NoError(b, s.Close())
	}
	b.ReportMetric(float64((used(b).cpu-before.cpu).Milliseconds())/float64(b.N), "cpu-ms/op")
	info, err := os.Stat(path)
	require.NoError(b, err)
	b.ReportMetric(float64(info.Size())/1e6, "MB-file")
}

// BenchmarkDisk measures what a ping writes with a million users. It pings long enough for a compaction.
func BenchmarkDisk(b *testing.B) {
	s, err := Open(Options{Path: filled(b), Sync: defaultSync, Logger: quiet()})
	require.NoError(b, err)
	defer s.Close()
	pingPaced(b, s, "chat", benchUsers, 1100)
	reportSizes(b, s)
}

// BenchmarkDeleted measures a ping after a namespace of three million users was deleted, and on a new file.
func BenchmarkDeleted(b *testing.B) {
	for _, users := range []int{0, 3_000_000} {
		b.Run(fmt.Sprint(users), func(b *testing.B) {
			s, err := Open(Options{Path: filepath.Join(b.TempDir(), "lastseen.db"), Sync: defaultSync, Logger: quiet()})
			require.NoError(b, err)
			defer s.Close()
			fillNamespace(b, s, "gone", users)
			require.NoError(b, s.DeleteNamespace(context.Background(), "gone"))
			time.Sleep(4 * time.Second)
			pingPaced(b, s, "chat", 100_000, 200)
			reportSizes(b, s)
		})
	}
}
