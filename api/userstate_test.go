package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

var aliceKey = lastseen.UserKey{Namespace: "chat", User: "alice"}

// aliceStates returns the states of a server in which alice has a connection that is not woken.
func aliceStates(t *testing.T, s store.Store) (*userStates, *mailbox) {
	t.Helper()
	states := newTestServer(t, s).config.Shared.userStates
	m := states.open(aliceKey, false, func() {})
	t.Cleanup(m.close)
	return states, m
}

// callSteps returns a call of alice to bob in four states, with versions from 1 on.
func callSteps() []lastseen.Call {
	c := lastseen.Call{ID: "c1", From: "alice", To: "bob", Created: 1}
	ringing, active, ended := c, c, c
	ringing.State, ringing.Version, ringing.Expires = lastseen.Ringing, 1, 10
	active.State, active.Version, active.Expires, active.App = lastseen.Active, 2, 20, "1"
	candidate := active
	candidate.Version, candidate.App = 3, "2"
	ended.State, ended.Version, ended.Over = lastseen.Ended, 4, 15
	return []lastseen.Call{ringing, active, candidate, ended}
}

// TestKnownCalls: whenever reads begin and end, the client gets each change once, never an older one after a newer one,
// and in the end knows the newest.
func TestKnownCalls(t *testing.T) {
	t.Parallel()
	states, _ := aliceStates(t, fileStore(t))
	rapid.Check(t, func(t *rapid.T) {
		st := &userState{key: aliceKey}
		m := &mailbox{states: states, state: st, wake: func() {}}
		st.mailboxes = []*mailbox{m}
		var last lastseen.Call
		take := func() {
			_, changed := m.take()
			require.LessOrEqual(t, len(changed), 1)
			for _, c := range changed {
				require.True(t, last.ID == "" || c.Version > last.Version, "%v after %v", c, last)
				last = c
			}
		}
		type read struct {
			began  uint64
			result lastseen.Call
		}
		var reads []read // in progress
		now := 0         // the index of the state in the store
		steps := callSteps()
		set := func(c lastseen.Call, began uint64) {
			states.mu.Lock()
			defer states.mu.Unlock()
			c.Expires += lastseen.Instant(rapid.IntRange(0, 5).Draw(t, "renewed"))
			st.set(c, began)
		}
		set(steps[0], st.next())
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				now = min(now+1, len(steps)-1)
			case 1:
				reads = append(reads, read{began: st.next(), result: steps[now]})
			case 2:
				for i := range reads { // the store responds to some only now
					if rapid.Bool().Draw(t, "late") {
						reads[i].result = steps[now]
					}
				}
			case 3:
				if len(reads) > 0 {
					i := rapid.IntRange(0, len(reads)-1).Draw(t, "ends")
					set(reads[i].result, reads[i].began)
					reads = slices.Delete(reads, i, i+1)
				}
			}
			if rapid.Bool().Draw(t, "takes") {
				take()
			}
		}
		set(steps[now], st.next())
		take()
		require.Equal(t, steps[now].Version, last.Version)
	})
}

// TestKnownCallIsReplaced: a read that began since replaces what is known, also by an older version, as a store has it
// after a failover, unless the call was over. Calls that are over do not replace the one that goes on.
func TestKnownCallIsReplaced(t *testing.T) {
	t.Parallel()
	st := &userState{}
	steps := callSteps()
	ringing, active, ended := steps[0], steps[1], steps[3]
	st.set(active, st.next())
	for i := range 2 * maxKnownCalls {
		st.set(lastseen.Call{ID: strconv.Itoa(i), State: lastseen.Missed}, st.next())
	}
	require.Len(t, st.calls, maxKnownCalls)
	began := st.next()
	st.set(ringing, began)
	require.Equal(t, ringing, st.goingOn().Call)
	st.set(active, began)
	require.Equal(t, active, st.goingOn().Call)
	st.set(ringing, began)
	require.Equal(t, active, st.goingOn().Call, "the read began before")
	ended.Version = 1
	st.set(ended, began)
	require.Nil(t, st.goingOn(), "an end is newer whatever its version")
	st.set(active, st.next())
	require.Nil(t, st.goingOn())
}

// TestSignalledCalls: a signal about a known call changes it without a read of the store. It is read if it is not
// known, if it is not newer and differs, or if the signal has no call. Requests that wait are woken in any case.
func TestSignalledCalls(t *testing.T) {
	t.Parallel()
	states, m := aliceStates(t, fileStore(t))
	steps := callSteps()
	ringing, active, ended := steps[0], steps[1], steps[3]
	var wakes, signals int
	poll := states.open(aliceKey, true, func() { wakes++ })
	defer poll.close()
	signalled := func(c *lastseen.Call) bool {
		signals++
		return states.setSignalled(aliceKey, c)
	}
	require.False(t, signalled(&ringing), "whoever can publish must not make a phone ring")
	require.False(t, signalled(nil))
	_, changed := m.take()
	require.Empty(t, changed)

	m.state.set(ringing, m.state.next())
	require.True(t, signalled(&ringing), "again")
	other := ringing
	other.App = "another"
	require.False(t, signalled(&other), "of the same version")
	other = active
	other.To = "carol"
	require.False(t, signalled(&other), "of others")
	require.True(t, signalled(&active))
	require.False(t, signalled(&ringing), "an older one")
	_, changed = m.take()
	require.Equal(t, []lastseen.Call{active}, changed)
	require.True(t, signalled(&ended))
	require.True(t, signalled(&active), "it is over")
	_, changed = m.take()
	require.Equal(t, []lastseen.Call{ended}, changed)
	require.True(t, states.setSignalled(lastseen.UserKey{Namespace: "chat", User: "carol"}, &active), "not here")
	require.Equal(t, signals, wakes)
}

// TestOverlappingReads: if two reads of the availability overlap, it is not known which result is newer, so the one of
// a job is repeated.
func TestOverlappingReads(t *testing.T) {
	t.Parallel()
	reads := make(chan chan struct{}, 10)
	s := &hookedStore{Store: fileStore(t), after: func(call string) error {
		if call == "ReadAvailability" {
			proceed := make(chan struct{})
			reads <- proceed
			<-proceed
		}
		return nil
	}}
	set := func(availability lastseen.Availability) {
		now, err := s.Now(t.Context())
		require.NoError(t, err)
		_, err = s.SetAvailability(t.Context(), "chat", "alice", lastseen.Said{Availability: availability}, now)
		require.NoError(t, err)
	}
	w := newTestServer(t, s, live(s))
	states := w.config.Shared.userStates
	m := states.open(aliceKey, false, func() {})
	defer m.close()
	opened := make(chan lastseen.Said, 1)
	go func() {
		said, _, err := m.begin(context.Background())
		assert.NoError(t, err)
		opened <- said
	}()
	opening := <-reads
	set(lastseen.Away)
	states.refresh(aliceKey, reason{availability: true})
	job := <-reads
	set(lastseen.Busy) // its signal was lost
	close(opening)
	require.Empty(t, <-opened)
	close(job)
	close(<-reads) // once more
	await(t, func() bool {
		availability, _ := m.take()
		return availability != nil && availability.Availability == lastseen.Busy
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

// TestCallerIsSentCallsFirst: work for the callee begins once the caller's connections are woken.
func TestCallerIsSentCallsFirst(t *testing.T) {
	t.Parallel()
	var states *userStates
	order := make(chan string, 20)
	s := &hookedStore{Store: fileStore(t), before: func(_ context.Context, call string) error {
		if call == "ReadCalls" {
			states.mu.Lock()
			defer states.mu.Unlock()
			order <- fmt.Sprint("read for ", states.users[aliceKey].job != nil)
		}
		return nil
	}}
	w := newTestServer(t, s)
	states = w.config.Shared.userStates
	for _, user := range []string{"alice", "bob"} {
		m := states.open(lastseen.UserKey{Namespace: "chat", User: user}, false, func() { order <- "woken " + user })
		defer m.close()
	}
	w.ring("c1", "alice", "bob")
	states.receiveCall("chat", calls.OfSignal(calls.Signal("chat", "c1", "alice", "bob")))
	require.Equal(t, []string{"read for true", "woken alice"}, []string{<-order, <-order})
	require.Contains(t, <-order, "read for")
	require.Equal(t, "woken bob", <-order)
	active := callSteps()[1]
	change := calls.Change{ID: "c1", Users: []string{"alice", "bob"}, Call: &active}
	states.receiveCall("chat", change)
	require.Equal(t, []string{"woken alice", "woken bob"}, []string{<-order, <-order}, "without a read")
}
