package storetest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastseen/lastseen/store"
)

// DataFile returns the path of a data file to create, which is gone after the test. The file is in memory where there
// is such a file system: most tests are not about what the disk does. Those that are use t.TempDir.
func DataFile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "lastseen-test-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "lastseen.db")
}

// OneByOne is a store that takes batches, with a call for each.
type OneByOne struct{ store.Store }

// PingBatches implements [store.Batcher].
func (s OneByOne) PingBatches(ctx context.Context, batches []*store.Batch[store.PresenceEvent]) {
	for _, b := range batches {
		b.States, b.Err = s.Ping(ctx, b.Namespace, b.Items)
	}
}

// LookupBatches implements [store.Batcher].
func (s OneByOne) LookupBatches(ctx context.Context, batches []*store.Batch[string]) {
	for _, b := range batches {
		var details map[string]store.Details
		b.States, details, b.Err = s.Describe(ctx, b.Namespace, b.Items)
		for at, user := range b.Items {
			if d, some := details[user]; some {
				b.Details = append(b.Details, store.ItemDetails{At: at, Details: d})
			}
		}
	}
}

// NodeOf implements [store.Batcher]: all users are on one node.
func (OneByOne) NodeOf(string) (of func(user string) string) {
	return func(string) string { return "" }
}
