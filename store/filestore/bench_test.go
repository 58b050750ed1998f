package filestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

const benchUsers = 1_000_000

// benchUser returns one of a million IDs of 16 bytes.
func benchUser(n int) string { return fmt.Sprintf("%016x", uint64(n)*0x9E3779B97F4A7C15) }

// filled returns the path of a data file with a million users.
func filled(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "lastseen.db") // on a disk
	s, err := Open(Options{Path: path, Sync: defaultSync, Logger: quiet()})
	require.NoError(b, err)
	fillNamespace(b, s, "chat", benchUsers)
	require.NoError(b, s.Close())
	return path
}

// fillNamespace pings users, at any time of five minutes.
func fillNamespace(b *testing.B, s *Store, namespace string, users int) {
	b.Helper()
	batch := make([]store.PresenceEvent, 0, 10_000)
	for n := range users {
		batch = append(batch, store.PresenceEvent{User: benchUser(n), At: base + lastseen.Instant(rand.IntN(300_000))})
		if len(batch) == cap(batch) {
			_, err := s.Ping(context.Background(), namespace, batch)
			require.NoError(b, err)
			batch = batch[:0]
		}
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

// BenchmarkDevices compares what a ping costs without a device and with one, by the number of the user's devices, and
// reports the memory of a user.
func BenchmarkDevices(b *testing.B) {
	ctx := context.Background()
	const users = 100_000
	for devices := range 4 {
		b.Run(fmt.Sprint(devices), func(b *testing.B) {
			s := open(b, Options{Path: newPath(b), Sync: defaultSync})
			at := base
			write := func(user, device int) {
				at++
				name := benchUser(user)
				var err error
				if devices == 0 {
					_, err = s.Ping(ctx, "chat", []store.PresenceEvent{{User: name, At: at}})
				} else {
					_, err = s.RecordDevices(ctx, "chat", 150*time.Second, []store.DeviceEvent{{
						User: name, ID: fmt.Sprintf("%016x~%08d", user, device), Kind: lastseen.Web, At: at,
					}})
				}
				require.NoError(b, err)
			}
			before := float64(kit.HeapInUse())
			for user := range users {
				for device := range max(1, devices) {
					write(user, device)
				}
			}
			used := float64(kit.HeapInUse()) - before
			for b.Loop() {
				write(rand.IntN(users), rand.IntN(max(1, devices)))
			}
			b.ReportMetric(used/users, "B/user")
		})
	}
}
