package filestore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestCallsAreInMemory: a restart ends them without a trace, and the data file has nothing of them.
func TestCallsAreInMemory(t *testing.T) {
	t.Parallel()
	ctx, users := t.Context(), []string{"alice", "bob", "carol"}
	call := store.NewCall{ID: "1", From: "alice", To: "bob", Ring: time.Hour, Timeout: time.Hour, Shown: true}
	for _, sync := range []time.Duration{0, time.Hour} {
		m := &kit.Machine{}
		o := optionsOf(t, m)
		o.Sync = sync
		s := open(t, o)
		ping(t, s, "alice", base)
		availability.SetIn(t, s, "chat", "carol", away, base)
		size := liveOf(s)
		require.NoError(t, startCall(ctx, s, call))
		_, err := s.StepCall(ctx, "chat", store.CallAct{ID: "1", User: "bob", Action: lastseen.Accept})
		require.NoError(t, err)
		require.Equal(t, size, liveOf(s))
		require.NoError(t, compactNow(s))
		_, details, err := s.Describe(ctx, "chat", users)
		require.NoError(t, err)
		require.Len(t, details, 3)
		require.NoError(t, s.Close())

		s = open(t, o)
		_, details, err = s.Describe(ctx, "chat", users)
		require.NoError(t, err)
		require.Equal(t, map[string]store.Details{"carol": {Availability: away}}, details)
		names, err := s.CallNamespaces(ctx, "", 10)
		require.NoError(t, err)
		require.Empty(t, names)
		requireNoCall(t, s, "chat")
		require.NoError(t, startCall(ctx, s, call))
	}
}

func startCall(ctx context.Context, s *Store, c store.NewCall) error {
	_, err := s.StartCall(ctx, "chat", c)
	return err
}

// TestCallNeedsItsNamespace: no call begins in a namespace that could not be created, whether the disk fails, the limit
// is reached, or the caller is gone.
func TestCallNeedsItsNamespace(t *testing.T) {
	t.Parallel()
	call := store.NewCall{ID: "1", From: "alice", To: "bob", Ring: time.Hour, Timeout: time.Hour}
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync, MaxNamespaces: 1})
		ping(t, s, "alice", base)
		_, err := s.StartCall(t.Context(), "other", call)
		require.ErrorIs(t, err, store.ErrNamespaceLimit)
		_, err = s.StartCall(t.Context(), "chat", call)
		require.NoError(t, err)
		requireNoCall(t, s, "other")
	}
	s := open(t, Options{Path: newPath(t)})
	failed := true
	s.writer.commit = func(run changes) error {
		if failed {
			return errors.New("no disk")
		}
		return s.writer.log.append(run)
	}
	_, err := s.StartCall(t.Context(), "chat", call)
	require.ErrorIs(t, err, store.ErrUnavailable)
	requireNoCall(t, s, "chat")
	failed = false
	_, err = s.StartCall(t.Context(), "chat", call)
	require.NoError(t, err)
	require.NoError(t, s.DeleteNamespace(t.Context(), "chat"))

	block, blocked := make(chan struct{}), make(chan struct{})
	s.writer.commit = func(run changes) error {
		blocked <- struct{}{}
		<-block
		return s.writer.log.append(run)
	}
	go func() { _, _ = s.Ping(context.Background(), "busy", []store.PresenceEvent{{User: "alice", At: base}}) }()
	<-blocked
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- startCall(ctx, s, call) }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	go func() { // the next flushes are not held up
		for range blocked {
		}
	}()
	close(block)
	require.NoError(t, s.Forget(t.Context(), "busy", "alice"))
	requireNoCall(t, s, "chat")
	require.NoError(t, s.Close())
	close(blocked)
}

func requireNoCall(t *testing.T, s *Store, namespace string) {
	t.Helper()
	_, err := store.ReadCall(t.Context(), s, namespace, "1")
	require.ErrorIs(t, err, store.ErrCallNotFound)
	calls, err := s.ReadCalls(t.Context(), namespace, nil, []string{"alice", "bob"})
	require.NoError(t, err)
	require.Equal(t, make([]lastseen.Call, 2), calls)
}
