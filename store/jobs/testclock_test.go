package jobs

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/filestore"
)

func openFile(
	t *testing.T, sync time.Duration, now func() time.Time, monotonic func() time.Duration,
) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(filestore.Options{
		Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: sync, Now: now, Monotonic: monotonic,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
