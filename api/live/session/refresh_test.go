package session

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
)

// setAvailability sets alice's availability, without a signal.
func setAvailability(t *testing.T, s store.Store, availability lastseen.Availability) {
	t.Helper()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	state := lastseen.AvailabilityState{Availability: availability}
	_, err = s.SetAvailability(t.Context(), "chat", "alice", state, now)
	require.NoError(t, err)
}

// awaitAvailability waits until a mailbox has an availability.
func awaitAvailability(t *testing.T, m *mailbox, want lastseen.Availability) {
	t.Helper()
	kit.Await(t, func() bool {
		got, _ := m.take()
		return got != nil && got.Availability == want
	})
}

// pausedStore has reads of availabilities wait until a test lets them end.
func pausedStore(t *testing.T) (s *kit.HookedStore, reads chan chan struct{}) {
	t.Helper()
	reads = make(chan chan struct{}, 10)
	return &kit.HookedStore{Store: kit.FileStore(t), After: func(call string) error {
		if call == "ReadAvailability" {
			proceed := make(chan struct{})
			reads <- proceed
			<-proceed
		}
		return nil
	}}, reads
}

// beginLater has a connection read the state, and returns where the result comes.
func beginLater(t *testing.T, m *mailbox) <-chan beginning {
	t.Helper()
	begun := make(chan beginning, 1)
	go func() {
		b, err := m.begin(context.Background())
		assert.NoError(t, err)
		begun <- b
	}()
	return begun
}

// TestOverlappingReads: if two reads of the availability overlap, it is not known which result is newer, so it is read
// once more, by the job that was overtaken or by another one.
func TestOverlappingReads(t *testing.T) {
	t.Parallel()
	s, reads := pausedStore(t)
	states := statesOn(t, s)
	m, other := openMailbox(t, states), openMailbox(t, states)
	first := beginLater(t, m)
	opening := <-reads
	setAvailability(t, s, lastseen.Away)
	states.refresh(keyOf("alice"), reason{availability: true})
	job := <-reads
	setAvailability(t, s, lastseen.Busy) // its signal was lost
	close(opening)
	require.Empty(t, (<-first).availability)
	close(job)
	close(<-reads) // once more
	awaitAvailability(t, m, lastseen.Busy)

	setAvailability(t, s, lastseen.Away)
	first = beginLater(t, m)
	opening = <-reads
	setAvailability(t, s, "") // again without a signal
	second := beginLater(t, other)
	opening2 := <-reads
	close(opening)
	require.Equal(t, lastseen.Away, (<-first).availability.Availability)
	close(opening2)
	<-second
	close(<-reads)
	awaitAvailability(t, m, "")
}

// TestReadsOfCallsDoNotCount: a read of calls meanwhile does not make that of the availability void.
func TestReadsOfCallsDoNotCount(t *testing.T) {
	t.Parallel()
	s, reads := pausedStore(t)
	states := statesOn(t, s)
	m := openMailbox(t, states)
	setAvailability(t, s, lastseen.Busy)
	begun := beginLater(t, m)
	opening := <-reads
	done := make(chan struct{})
	states.refresh(keyOf("alice"), reason{ids: []string{"c1"}, then: []func(){func() { close(done) }}})
	<-done
	close(opening)
	require.Equal(t, lastseen.Busy, (<-begun).availability.Availability)
}

// TestFailedRefresh: what could be read is not read and sent again when the rest is, and what follows is called once.
// Users whose state cannot be read do not keep others waiting.
func TestFailedRefresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		s := &kit.HookedStore{Store: kit.FileStore(t), Before: func(_ context.Context, call string) error {
			if call == "ReadCalls" && away.Load() {
				return store.ErrUnavailable
			}
			return nil
		}}
		states := statesOn(t, s)
		var then, wakes atomic.Int64
		var mailboxes []*mailbox
		for i := range 2 * maxRefreshes {
			m := states.open(keyOf(strconv.Itoa(i)), false, func() { wakes.Add(1) })
			defer m.close()
			mailboxes = append(mailboxes, m)
			states.refresh(m.state.key, reason{
				availability: true, renewed: true, calls: true, then: []func(){func() { then.Add(1) }},
			})
		}
		time.Sleep(maxSending) // these mailboxes are woken, and never taken from
		synctest.Wait()
		require.EqualValues(t, 2*maxRefreshes, then.Load())
		time.Sleep(10 * refreshRetry)
		away.Store(false)
		time.Sleep(refreshRetry)
		synctest.Wait()
		for _, m := range mailboxes {
			states.mu.Lock()
			require.Nil(t, m.state.job)
			states.mu.Unlock()
		}
		require.EqualValues(t, 2*maxRefreshes, then.Load())
		require.EqualValues(t, 2*maxRefreshes, wakes.Load(), "each once")
	})
}

// TestEndsThatTheStoreLost: a call whose end clients were sent, but which is ongoing in the store, is ended, also if
// that fails at first.
func TestEndsThatTheStoreLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var acts atomic.Int64
		s := &kit.HookedStore{Store: kit.FileStore(t), Before: func(_ context.Context, call string) error {
			if call == "StepCall" && acts.Add(1) == 1 {
				return store.ErrUnavailable
			}
			return nil
		}}
		_, err := s.StartCall(t.Context(), "chat", store.NewCall{
			ID: "c1", From: "alice", To: "bob", Ring: time.Minute, Timeout: time.Minute,
		})
		require.NoError(t, err)
		states := statesOn(t, s)
		m := openMailbox(t, states)
		m.state.setCall(callSteps()[3], m.state.next())
		states.refresh(keyOf("alice"), reason{calls: true})
		time.Sleep(2 * refreshRetry)
		synctest.Wait()
		c, err := store.ReadCall(t.Context(), s, "chat", "c1")
		require.NoError(t, err)
		require.Equal(t, lastseen.Cancelled, c.State)
		require.EqualValues(t, 2, acts.Load())
	})
}

// TestReasonsAdd: that signals may have been lost is not forgotten when something else happens before the read.
func TestReasonsAdd(t *testing.T) {
	t.Parallel()
	var why reason
	why.add(reason{ids: []string{"c1"}})
	why.add(reason{calls: true, availability: true})
	why.add(reason{renewed: true, ids: []string{"c1", "c2"}})
	require.Equal(t, reason{availability: true, renewed: true, calls: true, ids: []string{"c1", "c2"}}, why)
	for i := range 2 * maxCallsToRefresh {
		why.add(reason{ids: []string{strconv.Itoa(i)}})
	}
	require.Len(t, why.ids, maxCallsToRefresh)
}
