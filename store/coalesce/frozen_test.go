package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestFrozenRedis checks that callers of a Redis that hangs get their answer within twice its timeout, however many
// wait. The promise is a time, so a time is compared; the timeout is so long that a busy machine does not matter.
func TestFrozenRedis(t *testing.T) {
	testenv.SkipWithRace(t, "so many goroutines take too long")
	const timeout, callers, imports = 2 * time.Second, 20_000, 10
	server := redistest.StartProcess(t)
	redis := openRedis(t, redisstore.Options{URL: server.URL()}, timeout)
	s := coalesce.New(redis, coalesce.Options{Timeout: timeout})
	defer func() { require.NoError(t, s.Close()) }()
	ctx := context.Background()
	_, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: "alice", At: 1}})
	require.NoError(t, err)
	server.Freeze(t)
	defer server.Thaw(t)

	many := make([]store.PresenceEvent, 10_000)
	users := make([]string, 1000)
	for i := range many {
		many[i] = store.PresenceEvent{User: fmt.Sprint("u", i), At: 1}
		users[i%len(users)] = many[i].User
	}
	calls := []func(namespace string) error{
		func(ns string) error { _, err := s.Ping(ctx, ns, many[:1]); return err },
		func(ns string) error { _, _, err := s.Describe(ctx, ns, users[:1]); return err },
		func(ns string) error { _, err := s.Leave(ctx, ns, many[:1]); return err },
		func(ns string) error { _, err := s.Ping(ctx, ns, many); return err },
		func(ns string) error { _, _, err := s.Describe(ctx, ns, users); return err },
		func(ns string) error { _, err := s.Leave(ctx, ns, many); return err },
		func(ns string) error { _, err := s.Count(ctx, ns, []lastseen.Range{{From: 1, To: 2}}); return err },
		func(ns string) error { return s.Register(ctx, []string{ns}) },
		func(ns string) error { return s.DeleteNamespace(ctx, ns) },
		func(string) error { return s.Ready(ctx) },
	}
	var wg sync.WaitGroup
	late, wrong := make(chan time.Duration, callers+imports*len(calls)), make(chan error, callers+imports*len(calls))
	call := func(namespace string, f func(string) error) {
		wg.Go(func() {
			begun := time.Now()
			if err := f(namespace); !errors.Is(err, store.ErrUnavailable) {
				wrong <- err
			}
			if waited := time.Since(begun); waited > 2*timeout+timeout/2 {
				late <- waited
			}
		})
	}
	for i := range callers {
		call([]string{"chat", "game", fmt.Sprint("new", i)}[i%3], calls[i%2])
	}
	for i := range imports {
		for _, f := range calls[2:] {
			call(fmt.Sprint("bulk", i), f)
		}
	}
	wg.Wait()
	close(late)
	close(wrong)
	for err := range wrong {
		require.ErrorIs(t, err, store.ErrUnavailable)
	}
	require.Empty(t, late, "calls that took longer than two timeouts")
}
