package filestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

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
			memory := func() float64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return float64(m.HeapAlloc)
			}
			before := memory()
			for user := range users {
				for device := range max(1, devices) {
					write(user, device)
				}
			}
			used := memory() - before
			for b.Loop() {
				write(rand.IntN(users), rand.IntN(max(1, devices)))
			}
			b.ReportMetric(used/users, "B/user")
		})
	}
}
