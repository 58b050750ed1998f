package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
)

// callers has users call each other in the namespace chat.
type callers struct {
	*testing.T
	store.Store
	ids  atomic.Int64
	name string // begins the IDs of calls
}

func newCallers(t *testing.T, s store.Store) *callers { return &callers{T: t, Store: s, name: "call"} }

// newCall returns a call that rings for an hour, and of which no party need be heard for as long.
func (c *callers) newCall(from, to string) store.NewCall {
	return store.NewCall{
		ID: fmt.Sprint(c.name, c.ids.Add(1)), From: from, To: to, Ring: time.Hour, Quiet: time.Hour, Shown: true,
	}
}

func (c *callers) start(n store.NewCall) lastseen.Call {
	c.Helper()
	step, err := c.StartCall(context.Background(), "chat", n)
	require.NoError(c, err)
	require.Equal(c, lastseen.Ringing, step.Call.State)
	return step.Call
}

// act does what must change the state.
func (c *callers) act(id, user string, action lastseen.CallAction) store.CallStep {
	c.Helper()
	step, err := c.StepCall(context.Background(), "chat", store.CallAct{ID: id, User: user, Action: action})
	require.NoError(c, err)
	require.Equal(c, lastseen.Stepped, step.Outcome)
	return step
}

// active starts a call, and has the callee accept it.
func (c *callers) active(n store.NewCall) {
	c.Helper()
	c.start(n)
	c.act(n.ID, n.To, lastseen.Accept)
}

func (c *callers) read(id string) lastseen.Call {
	c.Helper()
	call, err := store.ReadCall(context.Background(), c, "chat", id)
	require.NoError(c, err)
	return call
}

func (c *callers) expire() store.ExpiredCalls {
	c.Helper()
	expired, err := c.ExpireCalls(context.Background(), "chat")
	require.NoError(c, err)
	return expired
}

func (c *callers) hear(users ...string) []store.CallStep {
	c.Helper()
	heard := make([]store.CallHeard, len(users))
	for i, user := range users {
		heard[i].User = user
	}
	result, err := c.HearCalls(context.Background(), "chat", heard)
	require.NoError(c, err)
	return result.Steps
}

// noted returns the users who have to be copied.
func (c *callers) noted() []string {
	c.Helper()
	users, err := c.Store.(*redisstore.Store).NotedInCalls(context.Background(), "chat")
	require.NoError(c, err)
	return users
}

// expireNoted has ExpireCalls copy until nothing is noted: it takes what has been noted for a second.
func (c *callers) expireNoted() {
	c.Helper()
	require.Eventually(c, func() bool {
		c.expire()
		return len(c.noted()) == 0
	}, time.Minute, 100*time.Millisecond)
}

// note has users be in the outbox, as a server that dies after a step leaves them.
func (c *callers) note(users ...string) {
	c.Helper()
	require.NoError(c, c.Store.(*redisstore.Store).NoteInCalls(context.Background(), "chat", users...))
}

func (c *callers) setInCall(user string, until lastseen.Instant) {
	c.Helper()
	require.NoError(c, c.Store.(*redisstore.Store).SetInCall(context.Background(), "chat", user, until))
}

// until returns until when users are in a call, by their details.
func (c *callers) until(users ...string) []lastseen.Instant {
	c.Helper()
	_, all, err := c.Describe(context.Background(), "chat", users)
	require.NoError(c, err)
	ends := make([]lastseen.Instant, len(users))
	for i, user := range users {
		ends[i] = all[user].InCallUntil
	}
	return ends
}
