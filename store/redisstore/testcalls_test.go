package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	callstest "github.com/lastseen/lastseen/store/storetest/calls"
)

// callers has users call each other in the namespace chat, whose in-calls are copied to the shards of the users.
type callers struct {
	*testing.T
	*callstest.Calling
}

func newCallers(t *testing.T, s store.Store) *callers { return &callers{t, callstest.NewCalling(t, s)} }

func (c *callers) redis() *redisstore.Store { return c.Store.(*redisstore.Store) }

// noted returns the users who have to be copied.
func (c *callers) noted() []string {
	c.Helper()
	users, err := c.redis().NotedInCalls(context.Background(), "chat")
	require.NoError(c, err)
	return users
}

// expireNoted has ExpireCalls copy until nothing is noted: it takes what has been noted for a second.
func (c *callers) expireNoted() {
	c.Helper()
	require.Eventually(c, func() bool {
		c.Expire()
		return len(c.noted()) == 0
	}, time.Minute, 100*time.Millisecond)
}

// note has users be in the outbox, as a server that dies after a step leaves them.
func (c *callers) note(users ...string) {
	c.Helper()
	require.NoError(c, c.redis().NoteInCalls(context.Background(), "chat", users...))
}
