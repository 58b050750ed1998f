package api

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// TestWaker: a round lasts until the next wake.
func TestWaker(t *testing.T) {
	var r waker
	r.wake() // before the first use
	first := r.round()
	require.NoError(t, first.Err())
	require.Same(t, first, r.round())
	r.wake()
	require.Error(t, first.Err())
	require.NoError(t, r.round().Err())
}

// TestWatchCounts checks that a user with a token follows at most 5,000 users over all requests, and that nothing is
// kept of users who follow none.
func TestWatchCounts(t *testing.T) {
	var w watchCounts
	alice := &auth.Caller{Kind: auth.ByToken, Issuer: "issuer", Name: "alice"}
	require.NoError(t, w.add(alice, 3000))
	require.NoError(t, w.add(alice, store.MaxWatched-3000))
	requireCode(t, problem.RateLimited, w.add(alice, 1))
	for _, other := range []*auth.Caller{
		{Kind: auth.ByToken, Issuer: "another", Name: "alice"}, {Kind: auth.ByToken, Issuer: "issuer", Name: "bob"},
	} {
		require.NoError(t, w.add(other, store.MaxWatched))
		require.NoError(t, w.add(other, -store.MaxWatched))
	}
	for _, unlimited := range []*auth.Caller{nil, {Kind: auth.Anonymous}, {Kind: auth.ByKey, Name: "service"}} {
		for range 3 {
			require.NoError(t, w.add(unlimited, store.MaxWatched))
		}
	}
	require.Len(t, w.counts, 1)
	require.NoError(t, w.add(alice, -store.MaxWatched))
	require.Empty(t, w.counts)
}

// TestLedger: what is refused changes nothing, and what was counted is given back to the caller to whom it was counted.
func TestLedger(t *testing.T) {
	t.Parallel()
	shared := statesOn(kit.FileStore(t)).shared
	alice := &auth.Caller{Kind: auth.ByToken, Issuer: "issuer", Name: "alice"}
	key := limit.ByUser("issuer", "alice")
	payer := func() (limit.Key, bool) { return key, true }
	var ledgers []*ledger
	for i := range maxNamespaces {
		ledgers = append(ledgers, &ledger{shared: shared, namespace: strconv.Itoa(i), payer: payer})
		require.NoError(t, ledgers[i].set(2, alice))
	}
	refused := &ledger{shared: shared, namespace: "one more", payer: payer}
	requireCode(t, problem.RateLimited, refused.set(3, alice))
	require.Equal(t, 2*maxNamespaces, shared.watched.counts[key])
	requireCode(t, problem.RateLimited, ledgers[0].set(store.MaxWatched, alice))
	require.NoError(t, ledgers[0].set(1, &auth.Caller{Kind: auth.ByKey, Name: "after a reload"}))
	require.Equal(t, 2*maxNamespaces-1, shared.watched.counts[key])
	for _, l := range ledgers {
		l.clear()
	}
	require.Empty(t, shared.watched.counts)
	requireCode(t, problem.RateLimited, refused.set(1, alice)) // the others count for a while
	require.NoError(t, ledgers[0].set(1, alice))
}

// TestChangesCursors checks that cursors hold any places, and are bound to the namespace and to changes.
func TestChangesCursors(t *testing.T) {
	testenv.SkipWithRace(t, "nothing runs at the same time")
	for _, places := range [][]store.Place{
		{"1-0:a"}, {""}, {"a", "", "b\x00\n\"c"}, slices.Repeat([]store.Place{"1795212030000-0:5bcf34c91ed02aa6-12"}, 65),
	} {
		cursor := changesCursor("chat", places)
		require.NotContains(t, cursor, "\n")
		got, err := openChangesCursor("chat", cursor)
		require.NoError(t, err)
		require.Equal(t, places, got)
		for _, forged := range kit.Forgeries(cursor) {
			_, err := openChangesCursor("chat", forged)
			requireCode(t, problem.InvalidCursor, err)
		}
		_, err = openChangesCursor("chat2", cursor)
		requireCode(t, problem.InvalidCursor, err)
		_, _, err = openListCursor("chat", cursor, nil)
		require.Error(t, err, "it is not a cursor of a list")
	}
}

// TestForeignChangesCursors checks that well-sealed content of another form is refused before it takes memory.
func TestForeignChangesCursors(t *testing.T) {
	for _, content := range []string{
		"", "\x00", "\x01", "\x01\x05abc", "\x01\x01ab", "\x02\x01a", "\x42" + strings.Repeat("\x00", 66),
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("x", maxChangesCursor),
	} {
		_, err := openChangesCursor("chat", request.SealCursor(changesList("chat"), []byte(content)))
		requireCode(t, problem.InvalidCursor, err)
	}
	_, err := openChangesCursor("chat", request.SealCursor("chat", []byte("\x01\x00")))
	requireCode(t, problem.InvalidCursor, err)
	_, err = openChangesCursor("chat", request.SealCursor(changesList("chat"), []byte("\x01\x00")))
	require.NoError(t, err)
}

func requireCode(t *testing.T, want problem.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, classify(err).Code)
}

// FuzzChangesCursor checks that no content makes the server fail, and that what is accepted has one form.
func FuzzChangesCursor(f *testing.F) {
	f.Add([]byte("\x01\x051-0:a"))
	f.Add([]byte("\x02\x00\x01b"))
	f.Fuzz(func(t *testing.T, content []byte) {
		cursor := request.SealCursor(changesList("chat"), content)
		places, err := openChangesCursor("chat", cursor)
		if err != nil {
			return
		}
		again, err := openChangesCursor("chat", changesCursor("chat", places))
		require.NoError(t, err)
		require.Equal(t, places, again)
		_, err = openChangesCursor("chat", base64.RawURLEncoding.EncodeToString(content))
		require.Error(t, err, "it is not sealed")
	})
}

// FuzzCursor checks that an accepted cursor has valid parameters, and that they encode to the same cursor.
func FuzzCursor(f *testing.F) {
	p, err := readListParams(request.Query{
		"from": {"0.005"}, "to": {"1795175999"}, "offset": {"3"}, "order": {"oldest"}, "status": {"grey", "green"},
	}, view{kit.Now, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}, kit.Now})
	require.NoError(f, err)
	f.Add([]byte(p.cursor("chat", store.Record{User: "alice", State: lastseen.State{At: 7, Left: true}})), false)
	content, err := request.OpenCursor("chat", p.cursor("chat", store.Record{User: "a", State: lastseen.State{At: 7}}))
	require.NoError(f, err)
	f.Add(content, true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		cursor := string(data)
		if seal { // a forger can compute the checksum
			cursor = request.SealCursor("chat", data)
		}
		p, last, err := openListCursor("chat", cursor, request.Query{"limit": {"7"}, "cursor": {cursor}})
		if err != nil {
			require.Equal(t, problem.InvalidCursor, kit.RequireProblem(t, err).Code)
			return
		}
		requireValid(t, p)
		require.NoError(t, lastseen.CheckUser(last.User))
		require.True(t, p.from <= last.At && last.At <= p.to)
		require.Equal(t, cursor, p.cursor("chat", *last))
	})
}
