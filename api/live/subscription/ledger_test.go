package subscription

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// TestLedger: what is refused changes nothing, and what was counted is given back to the caller to whom it was counted.
func TestLedger(t *testing.T) {
	t.Parallel()
	shared := NewShared(time.Now)
	alice := &auth.Caller{Kind: auth.ByToken, Issuer: "issuer", Name: "alice"}
	key := limit.ByUser("issuer", "alice")
	payer := func() (limit.Key, bool) { return key, true }
	refuses := func(l *Ledger, n int) {
		require.Equal(t, problem.RateLimited, kit.RequireProblem(t, l.Set(n, alice)).Code)
	}
	var ledgers []*Ledger
	for i := range maxNamespaces {
		ledgers = append(ledgers, &Ledger{Shared: shared, Namespace: strconv.Itoa(i), Payer: payer})
		require.NoError(t, ledgers[i].Set(2, alice))
	}
	refused := &Ledger{Shared: shared, Namespace: "one more", Payer: payer}
	refuses(refused, 3)
	require.Equal(t, 2*maxNamespaces, tallied(&shared.Users, key))
	refuses(ledgers[0], store.MaxWatched)
	require.NoError(t, ledgers[0].Set(1, &auth.Caller{Kind: auth.ByKey, Name: "after a reload"}))
	require.Equal(t, 2*maxNamespaces-1, tallied(&shared.Users, key))
	for _, l := range ledgers {
		l.Clear()
	}
	require.Zero(t, tallied(&shared.Users, key))
	refuses(refused, 1) // the others count for a while
	require.NoError(t, ledgers[0].Set(1, alice))
}

// TestLedgerOfOthers: users of another issuer, and with another name, have their own budgets.
func TestLedgerOfOthers(t *testing.T) {
	t.Parallel()
	shared := NewShared(time.Now)
	for _, caller := range []auth.Caller{
		{Issuer: "issuer", Name: "alice"}, {Issuer: "another", Name: "alice"}, {Issuer: "issuer", Name: "bob"},
	} {
		caller.Kind = auth.ByToken
		require.NoError(t, (&Ledger{Shared: shared}).Set(store.MaxWatched, &caller))
		require.Error(t, (&Ledger{Shared: shared}).Set(1, &caller))
	}
}

// TestLedgerCountsTokens: callers without tokens follow as many users as they want to.
func TestLedgerCountsTokens(t *testing.T) {
	t.Parallel()
	shared := NewShared(time.Now)
	for _, unlimited := range []*auth.Caller{nil, {Kind: auth.Anonymous}, {Kind: auth.ByKey, Name: "service"}} {
		for range 2 {
			require.NoError(t, (&Ledger{Shared: shared}).Set(store.MaxWatched, unlimited))
		}
	}
}

// tallied returns how many a caller has.
func tallied(t *limit.Tally, k limit.Key) (n int) {
	for !t.Add(k, 1, n+1) {
		n++
	}
	t.Add(k, -1, 0)
	return n
}
