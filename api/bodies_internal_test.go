package api

import (
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

func requireValid(t *testing.T, p listParams) {
	t.Helper()
	require.NoError(t, p.thresholds.Validate())
	require.True(t, 0 <= p.from && p.from <= p.to && p.to <= p.asOf && p.asOf <= lastseen.MaxInstant, "%+v", p)
	require.True(t, 0 <= p.offset && p.offset <= request.MaxLimit, "%+v", p)
	require.Contains(t, []store.Order{store.Newest, store.Oldest}, p.order)
	require.Subset(t, lastseen.Statuses(), p.statuses)
	values, err := url.ParseQuery(p.canonical)
	require.NoError(t, err)
	again, err := readListParams(request.Query(values), view{})
	require.NoError(t, err)
	require.Equal(t, p, again, "the canonical query asks for the same list")
}

// FuzzQuery checks that a query is refused or describes a valid list.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"status=green&status=grey&limit=7&order=oldest&from=1&to=2026-11-20T12:00:00Z&as_of=1795176000&green=1s&yellow=2m&offset=3",
		"utm_source=x&_=1", "limit=%31", "green=5m&yellow=1m", "a;b", "%", "as_of=1e9", "from=-1", "user=&user=%ff",
	} {
		f.Add(seed)
	}
	list := evaluation("status", "from", "to", "order", "limit", "cursor", "offset", "user")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := request.ParseQuery(raw, list)
		if err != nil {
			kit.RequireProblem(t, err)
			return
		}
		p, err := readListParams(q, view{kit.Now, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}, kit.Now})
		if err != nil {
			kit.RequireProblem(t, err)
			return
		}
		requireValid(t, p)
		for name := range q {
			require.Contains(t, list, name)
		}
	})
}

// TestSharesFitLargestRequests checks the shares of callers if there is the least memory: see TestLargestRequestsFit.
func TestSharesFitLargestRequests(t *testing.T) {
	requireFits := func(key limit.Key, form request.Form, items int) {
		hold := limit.NewMemory(MinBodyMemory, guard.ErrBodyMemory).Hold(key, true)
		require.NoError(t, hold.Grow(2*int(form.Max)+form.Each*items))
	}
	requireFits(limit.ByAPIKey("a"), itemsForm, itemsForm.Items)
	requireFits(limit.ByAddress(netip.Addr{}), itemsForm, itemsForm.Items)
	requireFits(limit.ByUser("i", "a"), lookupForm, lookupForm.Items)
	requireFits(limit.ByUser("i", "a"), contactsForm, store.MaxContacts)
}
