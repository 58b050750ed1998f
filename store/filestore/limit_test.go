package filestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
)

// TestNamespaceLimit: at the limit a write creates nothing, existing namespaces are written to, and Register is exempt.
func TestNamespaceLimit(t *testing.T) {
	for _, sync := range []time.Duration{0, time.Hour} {
		ctx := context.Background()
		s := open(t, Options{Path: newPath(t), Sync: sync, MaxNamespaces: 2})
		require.NoError(t, s.Register(ctx, []string{"configured"}))
		write := func(namespace string) error {
			batch := []store.Sighting{{User: "alice", At: base}}
			_, pinged := s.Ping(ctx, namespace, batch)
			_, left := s.Leave(ctx, namespace, batch)
			return errors.Join(pinged, left)
		}
		require.NoError(t, write("first"))
		require.ErrorIs(t, write("second"), store.ErrNamespaceLimit)
		require.NoError(t, write("first"))
		require.NoError(t, write("configured"))
		require.NoError(t, s.Register(ctx, []string{"also configured", "and this"}))
		require.ErrorIs(t, write("second"), store.ErrNamespaceLimit)
		require.NotContains(t, truthOf(t, s), "second")
		for _, name := range []string{"first", "also configured", "and this"} {
			require.NoError(t, s.DeleteNamespace(ctx, name))
		}
		require.NoError(t, write("second"), "there is room again")
		require.ErrorIs(t, write("third"), store.ErrNamespaceLimit)
		require.NoError(t, s.Forget(ctx, "third", "alice"))
		require.NoError(t, s.Forget(ctx, "second", "alice"))
		removed, err := s.RemoveEmpty(ctx, "second")
		require.NoError(t, err)
		require.True(t, removed)
		require.NoError(t, write("third"))
		require.NoError(t, s.Close())

		s = open(t, Options{Path: s.Path(), Sync: sync, MaxNamespaces: 1})
		require.Len(t, truthOf(t, s), 2, "a lower limit deletes nothing")
		require.NoError(t, write("third"))
	}
}

// TestNamespaceLimitOfDevices: it applies to what devices create, too.
func TestNamespaceLimitOfDevices(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		storetest.DeviceLimit(t, open(t, Options{Path: newPath(t), Sync: sync, MaxNamespaces: 1}))
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
		batch := []store.Sighting{{User: "alice", At: base}, {User: "bob", At: base}}
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
