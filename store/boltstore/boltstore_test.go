package boltstore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(victimFile); path != "" {
		victim(path, os.Getenv(victimSync))
		return
	}
	goleak.VerifyTestMain(m)
}

// quiet keeps logs out of the tests' output.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

const base lastseen.Instant = 1_700_000_000_000

// open opens the store at a path and closes it with the test.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	o.Logger = quiet()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestConformance(t *testing.T) {
	for _, o := range []Options{{Sync: DefaultSync}, {Sync: 0}, {Sync: time.Millisecond, FoldAfter: 1}} {
		t.Run(fmt.Sprintf("sync=%s,fold=%d", o.Sync, o.FoldAfter), func(t *testing.T) {
			t.Parallel() // they wait for the disk
			storetest.Run(t, func(t testing.TB) store.Store {
				o.Path = filepath.Join(t.TempDir(), "lastseen.db")
				return open(t, o)
			})
		})
	}
}

// awaitFold waits for the first snapshot. It polls: a fold is in the background, and nobody who uses
// the store needs to know of its end.
func awaitFold(t testing.TB, s *Store) {
	t.Helper()
	require.Eventually(t, func() bool { return s.writer.log.snapshot.Load() > 0 }, time.Minute, time.Millisecond)
}

func ping(t testing.TB, s *Store, user string, at lastseen.Instant) {
	t.Helper()
	_, err := s.Ping(context.Background(), "chat", []store.Sighting{{User: user, At: at}})
	require.NoError(t, err)
}

// TestRegisteredSurvive: a namespace without anybody in it is in the file, too.
func TestRegisteredSurvive(t *testing.T) {
	for _, sync := range []time.Duration{0, time.Hour} {
		path := filepath.Join(t.TempDir(), "lastseen.db")
		s := open(t, Options{Path: path, Sync: sync})
		require.NoError(t, s.Register(context.Background(), []string{"a", "b"}))
		require.NoError(t, s.Close())
		all, err := open(t, Options{Path: path}).Namespaces(context.Background(), "", 10)
		require.NoError(t, err)
		require.Equal(t, []store.NamespaceInfo{{Name: "a"}, {Name: "b"}}, all)
	}
}
