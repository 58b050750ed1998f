package filestore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
)

func TestMain(m *testing.M) {
	testenv.LimitWalks(100)
	if path := os.Getenv(childFile); path != "" {
		child(path, os.Getenv(childSync))
		return
	}
	if path := os.Getenv(limitedFile); path != "" {
		limited(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// limitedFile is the variable that makes this binary run limited, on systems where there is such a limit.
const limitedFile = "LASTSEEN_LIMITED_FILE"

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

// newPath returns the path of a data file to create.
func newPath(t testing.TB) string { return storetest.DataFile(t) }

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, o := range testenv.Variants(
		Options{Sync: DefaultSync}, Options{Sync: 0}, Options{Sync: time.Millisecond, CompactAfter: 1}) {
		t.Run(fmt.Sprintf("sync=%s,compact=%d", o.Sync, o.CompactAfter), func(t *testing.T) {
			t.Parallel()
			suite := storetest.Run
			if o.Sync == 0 {
				suite = storetest.RunCore
			}
			suite(t, func(t testing.TB) store.Store {
				o.Path = newPath(t)
				return open(t, o)
			})
		})
	}
}

// inUse returns the salt of the file in use, which changes with each compaction.
func inUse(s *Store) uint32 {
	s.writer.log.mu.Lock()
	defer s.writer.log.mu.Unlock()
	return s.writer.log.header.salt
}

// awaitCompaction waits until the file was replaced. It polls: compaction is in the background, and users of the store
// need not know when it ends.
func awaitCompaction(t testing.TB, s *Store, before uint32) {
	t.Helper()
	require.Eventually(t, func() bool { return inUse(s) != before }, time.Minute, time.Millisecond)
}

func ping(t testing.TB, s *Store, user string, at lastseen.Instant) {
	t.Helper()
	_, err := s.Ping(context.Background(), "chat", []store.Sighting{{User: user, At: at}})
	require.NoError(t, err)
}

// TestRegisteredSurvive: an empty namespace is in the file, too.
func TestRegisteredSurvive(t *testing.T) {
	for _, sync := range []time.Duration{0, time.Hour} {
		path := newPath(t)
		s := open(t, Options{Path: path, Sync: sync})
		require.NoError(t, s.Register(context.Background(), []string{"a", "b"}))
		require.NoError(t, s.Close())
		all, err := open(t, Options{Path: path}).Namespaces(context.Background(), "", 10)
		require.NoError(t, err)
		require.Equal(t, []store.NamespaceInfo{{Name: "a"}, {Name: "b"}}, all)
	}
}
