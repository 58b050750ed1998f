package filestore

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestRestore puts a backup where no file is, and, if asked, where one is. The new file has the permissions of the old.
func TestRestore(t *testing.T) {
	s := open(t, Options{Path: newPath(t)})
	ping(t, s, "alice", base)
	held, saved := truthOf(t, s), backup(t, s)
	path := newPath(t)
	size, err := Restore(saved, path, false)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, info.Size(), size)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	restored := open(t, Options{Path: path})
	require.Equal(t, held, truthOf(t, restored))
	ping(t, restored, "bob", base)
	require.NoError(t, restored.Close())

	require.NoError(t, os.Chmod(path, 0o640))
	_, err = Restore(saved, path, false)
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = Restore(saved, path, true)
	require.NoError(t, err)
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
	require.Equal(t, held, truthOf(t, open(t, Options{Path: path})))
}

// TestRestoreThroughLink replaces the file and keeps the link that leads to it.
func TestRestoreThroughLink(t *testing.T) {
	s := open(t, Options{Path: newPath(t)})
	path, link := newPath(t), newPath(t)
	_, err := Restore(backup(t, s), path, false)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(path, link))
	_, err = Restore(backup(t, s), link, true)
	require.NoError(t, err)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink, info.Mode().Type())
}

// TestRestoreRefuses whatever is no complete backup, and data that is in use. It leaves what was there, and nothing
// else.
func TestRestoreRefuses(t *testing.T) {
	s := open(t, Options{Path: newPath(t)})
	pingMany(t, s, "chat", 1000, base)
	saved := backup(t, s)
	whole, err := os.ReadFile(saved)
	require.NoError(t, err)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	used, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		content []byte
		err     string
	}{
		"cut":     {whole[:len(whole)-1], ErrDamaged.Error()},
		"flipped": {flipped, ErrDamaged.Error()},
		"foreign": {[]byte("precious"), ErrForeign.Error()},
		"empty":   {nil, ErrForeign.Error()},
		"used":    {used, "not a backup, but a data file that was in use"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad.db")
			require.NoError(t, os.WriteFile(bad, c.content, 0o600))
			for _, exists := range []bool{false, true} {
				path := newPath(t)
				if exists {
					require.NoError(t, os.WriteFile(path, whole, 0o600))
				}
				_, err := Restore(bad, path, true)
				require.ErrorContains(t, err, c.err)
				files, err := filepath.Glob(path + "*")
				require.NoError(t, err)
				if !exists {
					require.Empty(t, files)
					continue
				}
				require.Equal(t, []string{path}, files)
				kept, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, whole, kept)
			}
		})
	}
	_, err = Restore(saved, s.Path(), true)
	require.ErrorIs(t, err, ErrLocked)
	path := newPath(t)
	require.NoError(t, os.Rename(saved, tempName(path)))
	_, err = Restore(tempName(path), path, true)
	require.ErrorContains(t, err, "rename it first")
	require.NoError(t, Verify(tempName(path)))
	_, err = Restore(saved+".none", newPath(t), false)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestRestoreBesideStart: a store that is opened for the first time while a backup is restored to its path waits, or
// fails; it never goes on with a file that the backup replaced.
func TestRestoreBesideStart(t *testing.T) {
	path := newPath(t)
	next, err := lockFile(tempName(path), os.O_RDWR|os.O_CREATE) // as Restore has it
	require.NoError(t, err)
	_, err = Open(Options{Path: path})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, next.Close())
	require.NoError(t, os.Remove(next.Name()))
	s := open(t, Options{Path: path})
	_, err = Restore(backup(t, s), path, false)
	require.ErrorIs(t, err, ErrLocked)
}

// TestWriteAndRead: what is read from a file and written to another one is the same; only users who differ are
// changes.
func TestWriteAndRead(t *testing.T) {
	s := open(t, Options{Path: newPath(t)})
	ping(t, s, "alice", base)
	_, err := s.RecordDevices(t.Context(), "chat", time.Minute, []store.DeviceEvent{
		{User: "bob", ID: "phone", Kind: lastseen.Mobile, At: base, Meta: `{"n":1}`},
	})
	require.NoError(t, err)
	require.NoError(t, s.SetContacts(t.Context(), "chat", "never seen", []string{"alice"}))
	_, _, err = Read(s.Path())
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, s.Close())
	from, release, err := Read(s.Path())
	require.NoError(t, err)
	_, err = Open(Options{Path: s.Path()})
	require.ErrorIs(t, err, ErrLocked)
	release()

	path := newPath(t)
	require.NoError(t, Write(path, from, false))
	require.ErrorIs(t, Write(path, from, false), fs.ErrExist)
	require.NoError(t, Verify(path))
	other := open(t, Options{Path: path})
	ping(t, other, "alice", base+1)
	ping(t, other, "new", base)
	require.NoError(t, other.Close())
	to, release, err := Read(path)
	require.NoError(t, err)
	release()
	changes := map[string]store.KeptChange{}
	surplus, missing, err := from.Compare(to.Export, func(_ string, c store.KeptChange) error {
		changes[c.User] = c
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, append(surplus, missing...))
	require.Equal(t, map[string]store.KeptChange{
		"alice": {
			User: "alice", Was: store.Kept{State: lastseen.State{At: base + 1}},
			Now: store.Kept{State: lastseen.State{At: base}},
		},
		"new": {User: "new", Was: store.Kept{State: lastseen.State{At: base}}},
	}, changes)
}
