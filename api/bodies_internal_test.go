package api

import (
	"io"
	"net/http/httptest"
	"net/url"
	"runtime"
	"testing"
	"testing/iotest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// TestAnnouncedBodies checks that a Content-Length without a body allocates almost nothing.
func TestAnnouncedBodies(t *testing.T) {
	const bodies = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range bodies {
		r := httptest.NewRequest("POST", "/", iotest.ErrReader(io.ErrUnexpectedEOF))
		r.ContentLength = maxBody
		requireProblem(t,
			(&server{Shared: &Shared{bodies: newBodyMemory(DefaultBodyMemory)}}).body(echo.New().NewContext(r,
				httptest.NewRecorder()), maxBody).read())
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(bodies*maxBody/10))
}

func requireValid(t *testing.T, p listParams) {
	t.Helper()
	require.NoError(t, p.thresholds.Validate())
	require.True(t, 0 <= p.from && p.from <= p.to && p.to <= p.asOf && p.asOf <= lastseen.MaxInstant, "%+v", p)
	require.True(t, 0 <= p.offset && p.offset <= maxLimit, "%+v", p)
	require.Contains(t, []store.Order{store.Newest, store.Oldest}, p.order)
	require.Subset(t, lastseen.Statuses(), p.statuses)
	values, err := url.ParseQuery(p.canonical)
	require.NoError(t, err)
	again, err := readListParams(query(values), view{})
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
		q, err := parseQuery(raw, list)
		if err != nil {
			requireProblem(t, err)
			return
		}
		p, err := readListParams(q, view{kit.Now, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}, kit.Now})
		if err != nil {
			requireProblem(t, err)
			return
		}
		requireValid(t, p)
		for name := range q {
			require.Contains(t, list, name)
		}
	})
}

// TestBodyMemory checks that no limit is exceeded, whatever callers take and release, and that a request that fits
// is accepted.
func TestBodyMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = MinBodyMemory
		m := newBodyMemory(total)
		callers := []limit.Key{
			limit.ByAPIKey("a"), limit.ByAPIKey("b"), limit.ByUser("i", "a"), limit.ByUser("i", "b"),
			{Policy: limit.PerAddress},
		}
		holds := make([]bodyHold, 20)
		for i := range holds {
			holds[i] = bodyHold{memory: m, key: callers[i%len(callers)], shared: i != 4}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			h := &holds[rapid.IntRange(0, len(holds)-1).Draw(t, "hold")]
			switch n := rapid.IntRange(1, 4<<20).Draw(t, "bytes"); {
			case rapid.IntRange(0, 3).Draw(t, "what") == 0:
				h.release()
			default:
				used, shares, keyless := usage(holds)
				fits := used+int64(n) <= total && (h.key.Policy == limit.PerKey || keyless+int64(n) <= total*3/4) &&
					(!h.shared || shares[h.key]+int64(n) <= m.share(h.key.Policy))
				require.Equal(t, fits, h.grow(n) == nil)
			}
			used, shares, keyless := usage(holds)
			require.Equal(t, used, m.used)
			require.Equal(t, keyless, m.keyless)
			require.Equal(t, shares, m.callers)
		}
		for i := range holds {
			holds[i].release()
		}
		require.Zero(t, m.used+m.keyless)
		require.Empty(t, m.callers, "it does not grow with callers that come and go")
	})
}

// usage adds up what is held.
func usage(holds []bodyHold) (used int64, shares map[limit.Key]int64, keyless int64) {
	shares = map[limit.Key]int64{}
	for _, h := range holds {
		used += h.bytes
		if h.shared && h.bytes > 0 {
			shares[h.key] += h.bytes
		}
		if h.key.Policy != limit.PerKey {
			keyless += h.bytes
		}
	}
	return used, shares, keyless
}

// TestSharesFitLargestRequests checks the shares of callers if there is the least memory: see TestLargestRequestsFit.
func TestSharesFitLargestRequests(t *testing.T) {
	m := newBodyMemory(MinBodyMemory)
	require.LessOrEqual(t, 2*maxBody+itemMemory.bytes*itemMemory.max, int(m.share(limit.PerKey)))
	require.LessOrEqual(t, 2*maxBody+itemMemory.bytes*itemMemory.max, int(m.share(limit.PerAddress)))
	require.LessOrEqual(t, 2*maxLookupBody+lookupMemory.bytes*maxLookup, int(m.share(limit.PerUser)))
	require.LessOrEqual(t, 2*maxLookupBody+contactMemory.bytes*store.MaxContacts, int(m.share(limit.PerUser)))
}

// TestNullItemsCount checks that a null item counts as much memory as any other.
func TestNullItemsCount(t *testing.T) {
	require.GreaterOrEqual(t, itemMemory.of([]byte(`{"pings":[null,null,null]}`)), 3*itemMemory.bytes)
	require.GreaterOrEqual(t, lookupMemory.of([]byte(`{"users":[null,null,null]}`)), 3*lookupMemory.bytes)
	require.GreaterOrEqual(t, contactMemory.of([]byte(`{"users":[null,null,null]}`)), 3*contactMemory.bytes)
}
