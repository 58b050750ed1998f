package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// backup writes a backup of s to a new file and returns its path.
func backup(t *testing.T, s *Store) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.Backup(t.Context(), &b))
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	require.NoError(t, Verify(path))
	return path
}

// TestBackupHasWhatWasWritten also has it when no flush was due, and without users.
func TestBackupHasWhatWasWritten(t *testing.T) {
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync})
		require.Empty(t, truthOf(t, open(t, Options{Path: backup(t, s)})))
		ping(t, s, "alice", base)
		require.NoError(t, s.Register(t.Context(), []string{"empty"}))
		held := truthOf(t, s)
		copied := backup(t, s)
		ping(t, s, "later", base)
		require.Equal(t, held, truthOf(t, open(t, Options{Path: copied})))
	}
}

// TestBackupDuringCompaction reads on from the file that was replaced meanwhile.
func TestBackupDuringCompaction(t *testing.T) {
	s := open(t, Options{Path: newPath(t)})
	pingMany(t, s, "chat", 20_000, base)
	pingMany(t, s, "chat", 20_000, base+1)
	held := truthOf(t, s)
	before := inUse(s)
	var b bytes.Buffer
	first := true
	require.NoError(t, s.Backup(t.Context(), writerFunc(func(p []byte) (int, error) {
		if first {
			first = false
			require.NoError(t, compactNow(s))
			ping(t, s, "later", base)
		}
		return b.Write(p)
	})))
	require.NotEqual(t, before, inUse(s))
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	require.NoError(t, Verify(path))
	require.Equal(t, held, truthOf(t, open(t, Options{Path: path})))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestBackupUnderLoad: every ping that returned before a backup began is in it.
func TestBackupUnderLoad(t *testing.T) {
	for _, sync := range []time.Duration{0, time.Millisecond} {
		s := open(t, Options{Path: newPath(t), Sync: sync, CompactAfter: 1 << 12})
		ctx, stop := context.WithCancel(t.Context())
		var pings pinging
		for w := range 4 {
			pings.wg.Go(func() { pings.run(ctx, t, s, fmt.Sprintf("user-%d", w)) })
		}
		for range 5 {
			acknowledged := pings.copy()
			held := truthOf(t, open(t, Options{Path: backup(t, s)}))["chat"]
			for user, at := range acknowledged {
				require.GreaterOrEqual(t, held[user].At, at, user)
			}
		}
		stop()
		pings.wg.Wait()
	}
}

// pinging are pings in progress, and the last one of each user that returned.
type pinging struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	last map[string]lastseen.Instant
}

func (p *pinging) run(ctx context.Context, t *testing.T, s *Store, user string) {
	for at := base; ctx.Err() == nil; at++ {
		if _, err := s.Ping(t.Context(), "chat", []store.PresenceEvent{{User: user, At: at}}); err != nil {
			t.Error(err)
			return
		}
		p.mu.Lock()
		if p.last == nil {
			p.last = map[string]lastseen.Instant{}
		}
		p.last[user] = at
		p.mu.Unlock()
	}
}

func (p *pinging) copy() map[string]lastseen.Instant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.last)
}

// TestBackupDuringClose is complete or fails, and does not race with the end of the file.
func TestBackupDuringClose(t *testing.T) {
	for range 50 {
		s := open(t, Options{Path: newPath(t)})
		ping(t, s, "alice", base)
		var b bytes.Buffer
		done := make(chan error)
		go func() { done <- s.Backup(t.Context(), &b) }()
		require.NoError(t, s.Close())
		if <-done == nil {
			path := newPath(t)
			require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
			require.NoError(t, Verify(path))
		}
	}
}

// TestBackupFails with the error of its reader or writer, of the context, or of a flush.
func TestBackupFails(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: time.Hour})
	ping(t, s, "alice", base)
	broken := errors.New("broken")
	require.ErrorIs(t, s.Backup(t.Context(), writerFunc(func([]byte) (int, error) { return 0, broken })), broken)
	ended, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, s.Backup(ended, writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})), context.Canceled)

	s = open(t, Options{Path: newPath(t), Sync: time.Hour})
	var failing atomic.Bool
	commit := s.writer.commit
	s.writer.commit = func(run changes) error { // before anything is flushed
		if failing.Load() {
			return broken
		}
		return commit(run)
	}
	failing.Store(true)
	ping(t, s, "bob", base)
	require.ErrorIs(t, s.Backup(t.Context(), &bytes.Buffer{}), store.ErrUnavailable)
	failing.Store(false)
}

// TestBackupOfMovedFile: the file that has the path by now is another one.
func TestBackupOfMovedFile(t *testing.T) {
	s := open(t, Options{Path: newPath(t)})
	require.NoError(t, os.Rename(s.Path(), s.Path()+".old"))
	require.ErrorContains(t, s.Backup(t.Context(), &bytes.Buffer{}), "no such file")
	require.NoError(t, os.WriteFile(s.Path(), []byte("other"), 0o600))
	require.ErrorContains(t, s.Backup(t.Context(), &bytes.Buffer{}), "was moved or replaced")
}

func TestBackupOfClosedStore(t *testing.T) {
	s := open(t, Options{Path: newPath(t)})
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Backup(t.Context(), &bytes.Buffer{}), store.ErrClosed)
}

// TestVerifyRefusesEveryCut and every changed byte.
func TestVerifyRefusesEveryCut(t *testing.T) {
	testenv.SkipWithRace(t, "a file is only read")
	s := open(t, Options{Path: newPath(t)})
	ping(t, s, "alice", base)
	ping(t, s, "bob", base)
	whole, err := os.ReadFile(backup(t, s))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "backup")
	refuses := func(content []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, content, 0o600))
		require.Error(t, Verify(path))
	}
	for n := range whole {
		refuses(whole[:n])
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		refuses(changed)
	}
	refuses(append(bytes.Clone(whole), 0))
	require.ErrorIs(t, Verify(path+".none"), os.ErrNotExist)
}

func TestInUse(t *testing.T) {
	s := open(t, Options{Path: newPath(t)})
	require.True(t, InUse(s.Path()))
	require.NoError(t, s.Close())
	require.False(t, InUse(s.Path()))
	require.False(t, InUse(s.Path()+".none"))
}
