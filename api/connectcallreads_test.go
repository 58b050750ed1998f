package api

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// slowReads are reads of calls that wait until the test lets them end.
type slowReads struct {
	*callReads
	began chan []string // the users of each read
	end   chan error    // its result
}

func newSlowReads() *slowReads {
	s := &slowReads{began: make(chan []string, 10), end: make(chan error)}
	s.callReads = newCallReads(func(ctx context.Context, namespace string, users []string) ([]lastseen.Call, error) {
		s.began <- users
		select {
		case err := <-s.end:
			if err != nil && err.Error() == "panic" {
				panic(err)
			}
			calls := make([]lastseen.Call, len(users))
			for i := range users {
				calls[i].ID = namespace + " " + users[i]
			}
			return calls, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return s
}

// ask asks for the calls of users, one after the other, and returns where each gets its result.
func (s *slowReads) ask(ctx context.Context, namespace string, users ...string) <-chan string {
	results := make(chan string, len(users))
	for _, user := range users {
		go func() {
			c, err := s.of(ctx, person{namespace, user})
			results <- fmt.Sprint(c.ID, "; ", err)
		}()
		synctest.Wait()
	}
	return results
}

// TestCallReadsAreJoined: the users who come while a read runs share the next one, in each namespace of its own.
func TestCallReadsAreJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		first := s.ask(t.Context(), "chat", "alice")
		next := s.ask(t.Context(), "chat", "bob", "alice", "alice")
		other := s.ask(t.Context(), "other", "dave")
		require.Equal(t, []string{"alice"}, <-s.began)
		require.Equal(t, []string{"dave"}, <-s.began)
		require.Empty(t, s.began, "one at a time")
		s.end <- nil
		s.end <- nil
		require.Equal(t, "chat alice; <nil>", <-first)
		require.Equal(t, "other dave; <nil>", <-other)
		require.Equal(t, []string{"bob", "alice", "alice"}, <-s.began)
		s.end <- nil
		got := map[string]int{}
		for range 3 {
			got[<-next]++
		}
		require.Equal(t, map[string]int{"chat bob; <nil>": 1, "chat alice; <nil>": 2}, got)
		synctest.Wait()
		require.Empty(t, s.waits, "nothing is left")
	})
}

// TestCallReadsAreBounded: no read is of more users than the store allows.
func TestCallReadsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		users := make([]string, 1+store.MaxCallBatch+1)
		for i := range users {
			users[i] = fmt.Sprint("u", i)
		}
		all := s.ask(t.Context(), "chat", users...)
		for _, size := range []int{1, store.MaxCallBatch, 1} {
			require.Len(t, <-s.began, size)
			s.end <- nil
		}
		for range users {
			require.Contains(t, <-all, "<nil>")
		}
	})
}

// TestCallReadsFail: an error is that of all who share the read, and of no other caller. A caller that is gone does not
// keep others waiting, and a read that does not return is given up.
func TestCallReadsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		for _, failure := range []error{store.ErrNoCalls, errors.New("panic")} {
			first := s.ask(t.Context(), "chat", "alice")
			second := s.ask(t.Context(), "chat", "bob", "carol")
			s.end <- nil
			require.Equal(t, "chat alice; <nil>", <-first)
			s.end <- failure
			for range 2 {
				require.Contains(t, <-second, failure.Error())
			}
		}
		impatient, goAway := context.WithCancel(t.Context())
		gone := s.ask(impatient, "chat", "alice")
		stays := s.ask(t.Context(), "chat", "bob")
		goAway()
		require.Equal(t, "; context canceled", <-gone)
		require.Contains(t, <-stays, "context deadline exceeded")
	})
}

// heldCalls is a store whose first read of calls waits.
type heldCalls struct {
	store.Store
	reads atomic.Int64
	held  chan struct{}
}

func (h *heldCalls) ReadCalls(ctx context.Context, namespace string, users []string) ([]lastseen.Call, error) {
	if h.reads.Add(1) == 1 {
		<-h.held
	}
	return h.Store.ReadCalls(ctx, namespace, users)
}

// TestHellosShareReadsOfCalls: of many clients that connect at the same time, each gets the call of its user, and the
// store is asked twice.
func TestHellosShareReadsOfCalls(t *testing.T) {
	t.Parallel()
	s := &heldCalls{Store: fileStore(t), held: make(chan struct{})}
	w := newSocketServerOn(t, s)
	const users = 12
	clients := make([]*testSocket, users)
	for i := range clients {
		clients[i] = w.dialSocket("chat")
		clients[i].send(fmt.Sprintf(`{"hello":{"user":"u%d"}}`, i))
	}
	reads := w.config.Shared.callReads
	require.Eventually(t, func() bool {
		reads.mu.Lock()
		defer reads.mu.Unlock()
		return s.reads.Load() == 1 && len(reads.waits["chat"]) == users-1
	}, eventually, tick)
	w.ring("c1", "u3", "u7")
	close(s.held)
	for i, c := range clients {
		calls := c.want(frameWelcome)["calls"].([]any)
		if i != 3 && i != 7 {
			require.Empty(t, calls)
			continue
		}
		require.Len(t, calls, 1)
		require.Equal(t, "c1", calls[0].(map[string]any)["id"])
	}
	require.EqualValues(t, 2, s.reads.Load())
}
