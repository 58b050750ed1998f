//go:build faults

package faults

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// longestFlush is far beyond the time of a flush of a few kilobytes, also on a busy disk.
const longestFlush = 2 * time.Second

// TestServerKilled kills the server under load, again and again. What was acknowledged is there when it is back, except
// what it had not flushed by the setting sync.
func TestServerKilled(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		loses time.Duration // before the kill
		after time.Duration // the longest time between kills
	}{
		{"redis", nil, 0, time.Second},
		{"file with sync 0", []string{"--sync", "0"}, 0, time.Second},
		{"file with sync 1s", []string{"--sync", "1s"}, time.Second + longestFlush, 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := filepath.Join(t.TempDir(), "lastseen.db")
			if test.name == "redis" {
				store = redistest.StartProcess(t).URL()
			}
			s := startServer(t, store, test.args...)
			firstStart := s.metric(t, "process_start_time_seconds")
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			t.Logf("seed %d", seed)
			l := startLoad(t, loadOptions{leaves: 0.1, seed: seed}, s.url)
			for range testenv.Choose(20, 3) {
				l.awaitPings(t, 50)
				time.Sleep(time.Duration(random.Int64N(int64(test.after)))) // the moment of the kill is random
				if test.loses == 0 {
					s.kill(t)
				} else {
					l.mayLose(test.loses, func() { s.kill(t) })
				}
				s.start(t)
				l.verify(t, s.url)
			}
			l.awaitPings(t, 50)
			stats := l.stop(t)
			requireOnly(t, stats, "unreachable", overloaded)
			require.Greater(t, s.metric(t, "process_start_time_seconds"), firstStart)
			t.Logf("%d users verified", l.verify(t, s.url))
		})
	}
}
