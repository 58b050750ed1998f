package filestore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/presence"
	"github.com/lastseen/lastseen/store/storetest/servers"
)

// defaultSync is the usual time between flushes.
const defaultSync = time.Second

func TestMain(m *testing.M) {
	walks := 100
	if testenv.Race { // which takes ten times as long, and finds nothing in more of the same
		walks = 25
	}
	testenv.LimitWalks(walks)
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

func newPath(t testing.TB) string { return storetest.DataFile(t) }

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, o := range testenv.Variants(
		Options{Sync: defaultSync}, Options{Sync: 0}, Options{Sync: time.Millisecond, CompactAfter: 1}) {
		t.Run(fmt.Sprintf("sync=%s,compact=%d", o.Sync, o.CompactAfter), func(t *testing.T) {
			t.Parallel()
			suite := storetest.Run
			if o.Sync == 0 {
				suite = storetest.RunCore
			}
			suite(t, func(t testing.TB) store.Store {
				return open(t, Options{Path: newPath(t), Sync: o.Sync, CompactAfter: o.CompactAfter})
			})
		})
	}
}

// TestSurvive: devices and contacts are there after restarts, also if the file was compacted.
func TestSurvive(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Sync: defaultSync}, {Sync: 0}, {Sync: time.Millisecond, CompactAfter: 1}} {
		for name, test := range map[string]func(*testing.T, kit.Breakable){
			"devices": devices.Survive, "contacts": contacts.Survive,
		} {
			t.Run(fmt.Sprintf("%s,sync=%s,compact=%d", name, o.Sync, o.CompactAfter), func(t *testing.T) {
				t.Parallel()
				own := o
				own.Path = newPath(t)
				s := open(t, own)
				test(t, kit.Breakable{Store: s, Restart: func() store.Store {
					require.NoError(t, compactNow(s))
					require.NoError(t, s.Close())
					s = open(t, own)
					return s
				}})
			})
		}
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
	kit.Ping(t, s, user, at)
}

func TestGaps(t *testing.T) {
	presence.Gaps(t, func(gap func(string, time.Duration)) store.Store {
		return open(t, Options{Path: newPath(t), Sync: time.Second, Gap: gap})
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	servers.RunSignals(t, func(t testing.TB) (one, two store.Store) {
		s := open(t, Options{Path: newPath(t)})
		return s, s
	})
}

func TestNamespaceLimit(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync, MaxNamespaces: 2})
		devices.NamespaceLimit(t, s)
		require.NoError(t, s.Close())
		s = open(t, Options{Path: s.Path(), Sync: sync, MaxNamespaces: 1})
		require.Len(t, truthOf(t, s), 2, "a lower limit deletes nothing")
		kit.Write(s.Ping).Send(t, "third", []store.PresenceEvent{{User: "alice", At: base}})
	}
}

// TestNamespaceLimitInOneFlush: writes that share a flush share the limit.
func TestNamespaceLimitInOneFlush(t *testing.T) {
	const limit, callers = 10, 50
	s := open(t, Options{Path: newPath(t), Sync: 0, MaxNamespaces: limit})
	g := hold(s)
	var callersDone sync.WaitGroup
	failed := make(chan error, callers)
	write := func(namespace string) {
		batch := []store.PresenceEvent{{User: "alice", At: base}, {User: "bob", At: base}}
		states, err := s.Ping(context.Background(), namespace, batch)
		if err != nil {
			failed <- err
		} else if len(states) != 2 || states[1] != (lastseen.State{At: base}) {
			failed <- fmt.Errorf("states %v", states)
		}
	}
	callersDone.Go(func() { write("first") })
	<-g.entered
	for n := range callers - 1 {
		callersDone.Go(func() { write(fmt.Sprint(n)) })
	}
	require.Eventually(t, func() bool { return len(s.writer.requests) == callers-1 }, time.Minute, time.Millisecond)
	close(g.open)
	callersDone.Wait()
	close(failed)
	n := 0
	for err := range failed {
		require.ErrorIs(t, err, store.ErrNamespaceLimit)
		n++
	}
	require.Equal(t, callers-limit, n)
	require.Len(t, truthOf(t, s), limit)
	require.Len(t, inFile(t, s), limit)
}
