package session

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// keyOf names a user.
func keyOf(user string) lastseen.UserKey { return lastseen.UserKey{Namespace: "chat", User: user} }

// statesOn returns the states of users on a store.
func statesOn(t *testing.T, s store.Store) *userStates {
	t.Helper()
	return hubOn(t, s).userStates
}

// openMailbox opens a mailbox of a connection of alice until the test ends. It is not woken.
func openMailbox(t *testing.T, s *userStates) *mailbox {
	t.Helper()
	m := s.open(keyOf("alice"), false, func() {})
	t.Cleanup(m.close)
	return m
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
	states := statesOn(t, kit.FileStore(t))
	rapid.Check(t, func(t *rapid.T) {
		st := &userState{key: keyOf("alice")}
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
			st.setCall(c, began)
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
// after a failover, unless the call ended. Calls that are over do not replace the ongoing one.
func TestKnownCallIsReplaced(t *testing.T) {
	t.Parallel()
	st := &userState{}
	steps := callSteps()
	ringing, active, ended := steps[0], steps[1], steps[3]
	st.setCall(active, st.next())
	for i := range 2 * maxKnownCalls {
		st.setCall(lastseen.Call{ID: strconv.Itoa(i), State: lastseen.Missed}, st.next())
	}
	require.Len(t, st.calls, maxKnownCalls)
	began := st.next()
	st.setCall(ringing, began)
	require.Equal(t, ringing, st.ongoing().Call)
	st.setCall(active, began)
	require.Equal(t, active, st.ongoing().Call)
	st.setCall(ringing, began)
	require.Equal(t, active, st.ongoing().Call, "the read began before")
	ended.Version = 1
	st.setCall(ended, began)
	require.Nil(t, st.ongoing(), "an end is newer whatever its version")
	st.setCall(active, st.next())
	require.Nil(t, st.ongoing())
}

// TestSignalledCalls: a signal has what the app says now in a known call. All else is read: a call that is not known or
// that a party changed, one that differs although it is not newer, and a signal without a call. Requests that wait are
// woken in any case.
func TestSignalledCalls(t *testing.T) {
	t.Parallel()
	states := statesOn(t, kit.FileStore(t))
	m := openMailbox(t, states)
	steps := callSteps()
	ringing, active, candidate, ended := steps[0], steps[1], steps[2], steps[3]
	var wakes, signals int
	poll := states.open(keyOf("alice"), true, func() { wakes++ })
	defer poll.close()
	signalled := func(c *lastseen.Call) bool {
		signals++
		return states.setSignalled(keyOf("alice"), c)
	}
	require.False(t, signalled(&ringing), "whoever can publish must not make a phone ring")
	require.False(t, signalled(nil))
	m.state.setCall(ringing, m.state.next())
	m.take()
	require.True(t, signalled(&ringing), "again")
	require.False(t, signalled(&active))
	require.False(t, signalled(&ended))
	_, changed := m.take()
	require.Empty(t, changed)

	m.state.setCall(active, m.state.next())
	m.take()
	other := active
	other.App = "another"
	require.False(t, signalled(&other), "of the same version")
	other = candidate
	other.To = "carol"
	require.False(t, signalled(&other), "of others")
	require.True(t, signalled(&candidate))
	require.False(t, signalled(&active), "an older one")
	_, changed = m.take()
	require.Equal(t, []lastseen.Call{candidate}, changed)
	require.True(t, states.setSignalled(keyOf("carol"), &active), "not here")
	require.Equal(t, signals, wakes)
	m.state.setCall(ended, m.state.next())
	require.True(t, signalled(&active), "it is over")
}

// TestEndsOfCallsWait: a client that receives slowly gets the end of each call that it knows.
func TestEndsOfCallsWait(t *testing.T) {
	t.Parallel()
	states := statesOn(t, kit.FileStore(t))
	m := openMailbox(t, states)
	steps := callSteps()
	ended := func(id string) lastseen.Call {
		c := steps[3]
		c.ID = id
		return c
	}
	m.state.setCall(steps[0], m.state.next())
	m.take()
	m.state.setCall(steps[3], m.state.next())
	for i := range 2 * maxKnownCalls {
		m.state.setCall(ended(strconv.Itoa(i)), m.state.next())
	}
	_, changed := m.take()
	require.Equal(t, steps[3], changed[0])
	require.Len(t, changed, 1+2*maxKnownCalls)
	for i := range 2 * maxUnsentCalls {
		m.state.setCall(ended("more"+strconv.Itoa(i)), m.state.next())
	}
	require.Len(t, m.state.calls, maxUnsentCalls)
}

// TestCallerIsSentCallsFirst: work for the callee begins once the caller's connections were sent the call, or after a
// while if one of them is slow.
func TestCallerIsSentCallsFirst(t *testing.T) {
	t.Parallel()
	var states *userStates
	order := make(chan string, 20)
	s := &kit.HookedStore{Store: kit.FileStore(t), Before: func(_ context.Context, call string) error {
		if call == "ReadCalls" {
			order <- "read"
		}
		return nil
	}}
	states = statesOn(t, s)
	late := make(chan func(), 20)
	states.after = func(d time.Duration, do func()) *time.Timer {
		if d == maxSending {
			late <- do
		}
		return time.NewTimer(time.Hour)
	}
	boxes := map[string]*mailbox{}
	for _, user := range []string{"alice", "bob"} {
		boxes[user] = states.open(keyOf(user), false, func() { order <- "woken " + user })
		defer boxes[user].close()
	}
	send := func(user string) {
		boxes[user].take()
		boxes[user].sent()
	}
	_, err := s.StartCall(t.Context(), "chat", store.NewCall{
		ID: "c1", From: "alice", To: "bob", Ring: time.Minute, Timeout: time.Minute,
	})
	require.NoError(t, err)
	states.receiveCall("chat", calls.OfSignal(calls.Signal("chat", "c1", "alice", "bob")))
	require.Equal(t, "[read woken alice]", fmt.Sprint([]string{<-order, <-order}))
	<-late
	require.Empty(t, order)
	send("alice")
	require.Equal(t, "[read woken bob]", fmt.Sprint([]string{<-order, <-order}))
	send("bob")
	c, err := store.ReadCall(t.Context(), s, "chat", "c1")
	require.NoError(t, err)
	<-order
	c.App, c.Version = "more", c.Version+1
	states.receiveCall("chat", calls.Change{ID: "c1", Users: []string{"alice", "bob"}, Call: &c})
	require.Equal(t, "woken alice", <-order, "without a read")
	do := <-late
	require.Empty(t, order)
	do()
	require.Equal(t, "woken bob", <-order)
}
