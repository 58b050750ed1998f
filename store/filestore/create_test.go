package filestore

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// refused opens a path, which has to fail with an error, and returns it. Nothing may have changed.
func refused(t testing.TB, path string, want error) error {
	t.Helper()
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = Open(Options{Path: path, Logger: quiet()})
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, path)
	after, readErr := os.ReadFile(path)
	require.NoError(t, readErr)
	require.Equal(t, before, after, "a refused file was changed")
	names, globErr := filepath.Glob(path + "*")
	require.NoError(t, globErr)
	require.Equal(t, []string{path}, names, "something was left beside it")
	return err
}

func TestForeignFiles(t *testing.T) {
	bolt := make([]byte, 32<<10) // two meta pages of bbolt begin like this
	copy(bolt[16:], "\xed\xda\x0c\xed\x02\x00\x00\x00")
	for content, hint := range map[string]string{
		"":                              "empty",
		"hello":                         "not a lastseen data file",
		"lastsee":                       "", // damaged: see below
		string(make([]byte, 100_000)):   "not a lastseen data file",
		"SQLite format 3\x00 and so on": "not a lastseen data file",
		string(bolt):                    "bbolt",
	} {
		path, want := newPath(t), ErrForeign
		if hint == "" {
			want = ErrDamaged
		}
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.ErrorContains(t, refused(t, path, want), hint)
	}
}

// TestNotAFile: a path that is something else is refused.
func TestNotAFile(t *testing.T) {
	_, err := Open(Options{Path: t.TempDir()})
	require.ErrorIs(t, err, ErrForeign)
	_, err = Open(Options{Path: os.DevNull})
	require.ErrorIs(t, err, ErrForeign)
	dangling := newPath(t)
	require.NoError(t, os.Symlink("nowhere", dangling))
	_, err = Open(Options{Path: dangling})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestNoDirectory: a mistyped path is an error that names it, and nothing is created.
func TestNoDirectory(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "no-such-directory")
	_, err := Open(Options{Path: filepath.Join(parent, "lastseen.db")})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, parent)
	require.NoDirExists(t, parent)
}

// TestLockedByAProcess: the lock holds between processes, and ends with the one that had it.
func TestLockedByAProcess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	cmd := testenv.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+path, childSync+"=1ms")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 100_000)) // it has the store open, and has replaced the file
	require.NoError(t, err)
	go io.Copy(io.Discard, out)
	synctest.Test(t, func(t *testing.T) { // waits for the lock at once
		_, err := Open(Options{Path: path})
		require.ErrorIs(t, err, ErrLocked)
	})
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), "it was killed")
	require.NotEmpty(t, truthOf(t, open(t, Options{Path: path, Sync: defaultSync})))
}

// TestCreatedTwice: of several that create the same file at once, one has it, and the others get an error.
func TestCreatedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
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
		require.NotNil(t, winner, "none has the file")
		ping(t, winner, "alice", base)
		require.NoError(t, winner.Close())
		require.Contains(t, truthOf(t, open(t, Options{Path: path}))["chat"], "alice")
		names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		require.NoError(t, err)
		require.Equal(t, []string{path}, names, "something of the others is left")
	})
}

// TestLockedAfterCompaction: the lock goes over to the file that takes the place of the first, and so does what keeps a
// second process out that has opened the first one already.
func TestLockedAfterCompaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		s := open(t, Options{Path: path, Sync: 0})
		_, err := Open(Options{Path: path})
		require.ErrorIs(t, err, ErrLocked)
		early, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer early.Close()
		ping(t, s, "alice", base)
		require.NoError(t, compactNow(s))
		_, err = Open(Options{Path: path})
		require.ErrorIs(t, err, ErrLocked)
		locked, err := tryLock(early)
		require.NoError(t, err)
		require.True(t, locked, "the old file is not locked")
		named, err := hasName(early, path)
		require.NoError(t, err)
		require.False(t, named, "and it is not the data file any more")
	})
}

// TestSymbolicLink: compaction replaces the file that a link leads to, not the link.
func TestSymbolicLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link, target := newPath(t), newPath(t)
		require.NoError(t, open(t, Options{Path: target}).Close())
		require.NoError(t, os.Symlink(target, link))
		s := open(t, Options{Path: link, Sync: 0})
		require.Equal(t, link, s.Path())
		_, err := Open(Options{Path: target})
		require.ErrorIs(t, err, ErrLocked)
		ping(t, s, "alice", base)
		require.NoError(t, compactNow(s))
		require.NoError(t, s.Close())
		info, err := os.Lstat(link)
		require.NoError(t, err)
		require.Equal(t, os.ModeSymlink, info.Mode().Type())
		require.Contains(t, truthOf(t, open(t, Options{Path: target}))["chat"], "alice")
	})
}

// TestPermissions: only the owner can read a new file. What an administrator changes about that stays.
func TestPermissions(t *testing.T) {
	path := newPath(t)
	s := open(t, Options{Path: path, Sync: 0})
	mode := func() fs.FileMode {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	require.Equal(t, fs.FileMode(0o600), mode())
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, compactNow(s))
	require.Equal(t, fs.FileMode(0o640), mode())
}

// TestReplacedWhileInUse: compaction does not overwrite a file that has replaced the one in use.
func TestReplacedWhileInUse(t *testing.T) {
	path := newPath(t)
	s := open(t, Options{Path: path, Sync: 0})
	ping(t, s, "alice", base)
	require.NoError(t, os.Rename(path, path+".moved"))
	require.NoError(t, open(t, Options{Path: path}).Close())
	require.ErrorContains(t, compactNow(s), "moved or replaced")
	ping(t, s, "bob", base)
	require.NoError(t, s.Close())
	require.Empty(t, truthOf(t, open(t, Options{Path: path})))
	require.Len(t, truthOf(t, open(t, Options{Path: path + ".moved"}))["chat"], 2)
}

// TestLeftover: what a crash left of a compaction, or of creating a file, is removed at the next start.
func TestLeftover(t *testing.T) {
	for range 2 {
		path := newPath(t)
		require.NoError(t, os.WriteFile(tempName(path), make([]byte, 100), 0o600))
		s := open(t, Options{Path: path, Sync: 0})
		require.NoFileExists(t, tempName(path))
		ping(t, s, "alice", base)
		require.NoError(t, os.WriteFile(tempName(path), make([]byte, 1<<20), 0o600))
		require.NoError(t, compactNow(s))
		require.Contains(t, inFile(t, s)["chat"], "alice")
		require.NoError(t, s.Close())
		require.NoError(t, os.WriteFile(tempName(path), make([]byte, 100), 0o600))
		require.Contains(t, truthOf(t, open(t, Options{Path: path}))["chat"], "alice")
		require.NoFileExists(t, tempName(path))
	}
}
