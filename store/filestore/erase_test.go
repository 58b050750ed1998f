package filestore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestErasedTwice: who is gone from the index already may still be in the file. Erasing them again,
// as a caller does whose first try timed out, is answered only when the file has it, too.
func TestErasedTwice(t *testing.T) {
	for name, erase := range map[string]func(context.Context, *Store) error{
		"forget": func(ctx context.Context, s *Store) error { return s.Forget(ctx, "chat", "alice") },
		"delete": func(ctx context.Context, s *Store) error { return s.DeleteNamespace(ctx, "chat") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, g := opened(t, time.Hour)
				t.Cleanup(func() { close(g.open) })
				ping(t, s, "alice", base)
				<-g.entered
				g.open <- nil

				ctx, cancel := context.WithCancel(context.Background())
				first := make(chan error, 1)
				go func() { first <- erase(ctx, s) }()
				<-g.entered // the first try is being written
				cancel()
				require.ErrorIs(t, <-first, context.Canceled)
				require.Empty(t, truthOf(t, s)["chat"])
				require.Contains(t, inFile(t, s)["chat"], "alice")

				second := make(chan error, 1)
				go func() { second <- erase(context.Background(), s) }()
				synctest.Wait()
				require.Empty(t, second, "answered before the file has it")
				g.open <- nil
				require.NoError(t, <-second)
				require.Empty(t, inFile(t, s)["chat"])
			})
		})
	}
}

// TestForgetAfterTrim: Trim is answered before its flush, Forget of the same user after it.
func TestForgetAfterTrim(t *testing.T) {
	ctx := context.Background()
	s := open(t, Options{Path: newPath(t), Sync: time.Hour})
	ping(t, s, "alice", base)
	ping(t, s, "bob", base+1)
	require.NoError(t, s.Forget(ctx, "chat", "bob"))
	require.Contains(t, inFile(t, s)["chat"], "alice")
	now := kit.Now(t, s)
	result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: now, All: true})
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Deleted: 1}, result)
	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	require.NotContains(t, inFile(t, s)["chat"], "alice")
}

// stubborn is a context whose Done channel is closed while Err still returns nil, as between the two steps of a real
// one.
type stubborn struct {
	context.Context
	done chan struct{}
}

func (c stubborn) Done() <-chan struct{} { return c.done }
func (stubborn) Err() error              { return nil }

// TestBatchIsNotKept: a caller whose context ended may use its batch again at once, though the write
// may still be made.
func TestBatchIsNotKept(t *testing.T) {
	s, g := opened(t, 0)
	first := make(chan error, 1)
	go func() {
		_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: "first", At: base}})
		first <- err
	}()
	<-g.entered
	ctx := stubborn{context.Background(), make(chan struct{})}
	gone := make(chan struct{})
	batch := []store.PresenceEvent{{User: "second", At: base}}
	go func() {
		_, _ = s.Ping(ctx, "chat", batch)
		close(gone)
	}()
	require.Eventually(t, func() bool { return len(s.writer.requests) == 1 }, time.Minute, time.Millisecond)
	close(ctx.done)
	<-gone
	batch[0].User = "somebody-else"
	close(g.open)
	require.NoError(t, <-first)
	ping(t, s, "last", base)
	held := truthOf(t, s)["chat"]
	require.NotContains(t, held, "somebody-else")
	require.Contains(t, held, "second")
}
