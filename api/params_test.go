package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// requireValid checks the parameters of a list.
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

// TestLongQueries checks that a query is read or refused as a whole, and that errors quote only a part of it.
func TestLongQueries(t *testing.T) {
	w := newLimitedServer(t)
	few := func(s string) string { return strings.Repeat(s, 9_000) } // package net/url takes 10,000 apart
	repeat := func(s string) string { return strings.Repeat(s, (80<<10)/len(s)) }
	for query, want := range map[string]code{
		few("user=u&"):                     codeTooManyItems,
		repeat("user=u&"):                  codeInvalidParameter,
		few("user=&"):                      codeTooManyItems,
		repeat("&"):                        codeInvalidParameter, // no user at all
		few("a&") + "a":                    codeUnknownParameter,
		few("%61=%62&"):                    codeUnknownParameter,
		few("green=1s&"):                   codeInvalidParameter,
		"user=a&as_of=" + repeat("9"):      codeInvalidTime,
		"user=a&as_of=1e" + repeat("9"):    codeInvalidTime,
		"user=a&as_of=2026-" + repeat("0"): codeInvalidTime,
		"user=a&green=" + repeat("9h"):     codeInvalidDuration,
		"user=a&green=" + repeat("9"):      codeInvalidDuration,
		"user=" + repeat("u"):              codeInvalidUser,
		"user=" + repeat("%00"):            codeInvalidUser,
		"user=" + repeat("%ff"):            codeInvalidUser,
		few("=&"):                          codeUnknownParameter,
		repeat(";"):                        codeInvalidParameter,
		repeat("%"):                        codeInvalidParameter,
		"user=a&" + repeat("%00"):          codeUnknownParameter,
	} {
		r := w.send(http.MethodGet, "/chat/lookup?"+query, "")
		require.Equal(t, string(want), r.json(t)["code"], "%.40s: %s", query, r.body)
		require.Less(t, len(r.body), 8<<10, "%.40s", query)
	}
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
		p, err := readListParams(q, view{testNow, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}, testNow})
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
