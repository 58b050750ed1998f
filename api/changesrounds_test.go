package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
)

func TestRounds(t *testing.T) {
	var r rounds
	r.next() // before the first use
	first := r.current()
	require.NoError(t, first.Err())
	require.Same(t, first, r.current())
	r.next()
	require.Error(t, first.Err())
	require.NoError(t, r.current().Err())
}

// TestWatchCounts checks that a user with a token follows at most 5,000 users over all requests, and that nothing is
// kept of users who follow none.
func TestWatchCounts(t *testing.T) {
	var w watchCounts
	alice := &auth.Caller{Kind: auth.ByToken, Issuer: "issuer", Name: "alice"}
	first, err := w.take(alice, 3000)
	require.NoError(t, err)
	second, err := w.take(alice, store.MaxWatched-3000)
	require.NoError(t, err)
	_, err = w.take(alice, 1)
	requireCode(t, codeRateLimited, err)
	for _, other := range []*auth.Caller{
		{Kind: auth.ByToken, Issuer: "another", Name: "alice"}, {Kind: auth.ByToken, Issuer: "issuer", Name: "bob"},
	} {
		giveBack, err := w.take(other, store.MaxWatched)
		require.NoError(t, err)
		giveBack()
	}
	for _, unlimited := range []*auth.Caller{nil, {Kind: auth.Anonymous}, {Kind: auth.ByKey, Name: "service"}} {
		for range 3 {
			_, err := w.take(unlimited, store.MaxWatched)
			require.NoError(t, err)
		}
	}
	require.Len(t, w.counts, 1)
	first()
	third, err := w.take(alice, 3000)
	require.NoError(t, err)
	second()
	third()
	require.Empty(t, w.counts)
}
