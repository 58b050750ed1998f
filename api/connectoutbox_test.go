package api

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutbox: what waits for a slow client is bounded, and only the newest frame self waits.
func TestOutbox(t *testing.T) {
	t.Parallel()
	n := &session{ctx: t.Context()} // which is not welcome yet, so that nothing is sent
	for i := range maxPosts {
		require.True(t, n.post(posted{frame: []byte{byte(i)}}))
	}
	require.False(t, n.post(posted{frame: []byte("one more")}))
	require.True(t, n.post(posted{self: []byte("old")}))
	require.True(t, n.post(posted{self: []byte("new")}))
	require.True(t, n.post(posted{ping: true}))
	require.True(t, n.post(posted{ping: true}))
	next := func() posted {
		p, ok := n.nextPost()
		require.True(t, ok)
		return p
	}
	require.Equal(t, posted{self: []byte("new")}, next())
	for i := range maxPosts {
		require.Equal(t, posted{frame: []byte{byte(i)}}, next())
	}
	require.Equal(t, posted{ping: true}, next())
	_, ok := n.nextPost()
	require.False(t, ok)
	require.Nil(t, n.outbox, "it takes no memory")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n = &session{ctx: ctx, outbox: &outbox{ping: true}}
	_, ok = n.nextPost()
	require.False(t, ok, "the client is gone")
}
