package boltstore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// TestForeignFileIsNotChanged: bbolt itself writes to a file without a free list when it opens one.
// Such a file is never ours, and a refused file stays as it is.
func TestForeignFileIsNotChanged(t *testing.T) {
	for name, want := range map[string]error{"theirs": ErrForeign, string(headerBucket): ErrNewer} {
		path := filepath.Join(t.TempDir(), "other.db")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(name))
			return errors.Join(err, b.Put(formatKey, []byte("2")))
		}))
		require.NoError(t, db.Close())
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = Open(Options{Path: path})
		require.ErrorIs(t, err, want)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after, "a refused file was changed")
	}
}

// TestNoDirectory: a mistyped path is told as such, and nothing is made.
func TestNoDirectory(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "no-such-directory")
	_, err := Open(Options{Path: filepath.Join(parent, "lastseen.db")})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, parent)
	require.NoDirExists(t, parent)
}

// TestLockedByAProcess: the lock holds between processes, and ends with the one that had it.
func TestLockedByAProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lastseen.db")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimFile+"="+path, victimSync+"=1s")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 1)) // it has the store open
	require.NoError(t, err)
	go io.Copy(io.Discard, out)
	_, err = Open(Options{Path: path})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), "it was killed")
	require.NotEmpty(t, truthOf(t, open(t, Options{Path: path, Sync: DefaultSync})))
}

// TestCreatedTwice: of those who make the same new file at once one has it, and the others are told.
func TestCreatedTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lastseen.db")
	const racers = 4
	type result struct {
		s   *Store
		err error
	}
	results := make(chan result)
	for range racers {
		go func() {
			s, err := Open(Options{Path: path, Sync: 0, Logger: quiet()})
			results <- result{s, err}
		}()
	}
	var winner *Store
	for range racers {
		r := <-results
		if r.err != nil {
			require.ErrorIs(t, r.err, ErrLocked)
			continue
		}
		require.Nil(t, winner, "two have the file")
		winner = r.s
	}
	require.NotNil(t, winner, "nobody has the file")
	ping(t, winner, "alice", base)
	require.NoError(t, winner.Close())
	require.Contains(t, truthOf(t, open(t, Options{Path: path}))["chat"], "alice")
	names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{path}, names, "nothing is left of the others' tries")
}
