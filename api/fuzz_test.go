package api

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

// requireValid checks what holds for the parameters of every list.
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

// FuzzCursor: an accepted cursor has valid parameters, and is what they encode to.
func FuzzCursor(f *testing.F) {
	p, err := readListParams(query{
		"from": {"0.005"}, "to": {"1795175999"}, "offset": {"3"}, "order": {"oldest"}, "status": {"grey", "green"},
	}, view{noon, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}})
	require.NoError(f, err)
	f.Add([]byte(p.cursor("chat", store.Record{User: "alice", State: lastseen.State{At: 7, Left: true}})), false)
	content, err := openCursor("chat", p.cursor("chat", store.Record{User: "a", State: lastseen.State{At: 7}}))
	require.NoError(f, err)
	f.Add(content, true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		cursor := string(data)
		if seal { // a forger can compute the checksum
			cursor = sealCursor("chat", data)
		}
		p, last, err := openListCursor("chat", cursor, query{"limit": {"7"}, "cursor": {cursor}})
		if err != nil {
			require.Equal(t, codeInvalidCursor, requireProblem(t, err).code)
			return
		}
		requireValid(t, p)
		require.NoError(t, lastseen.CheckUser(last.User))
		require.True(t, p.from <= last.At && last.At <= p.to)
		require.Equal(t, cursor, p.cursor("chat", *last))
	})
}

// FuzzItem: an accepted item is a valid sighting.
func FuzzItem(f *testing.F) {
	for _, seed := range []string{
		`{"user":"alice","at":1}`, `{"user":"\u00e9","at":"2026-11-20T12:00:00Z"}`, `{}`,
		`null`, `{"at":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var i item
		if unmarshal(data, &i) != nil {
			return
		}
		sighting, err := i.sighting(noon)
		if err != nil {
			return
		}
		require.NoError(t, lastseen.CheckUser(sighting.User))
		require.GreaterOrEqual(t, sighting.At, lastseen.MinInstant)
		require.LessOrEqual(t, sighting.At, noon+maxAhead)
	})
}

// FuzzRequest: no path and no query makes the server fail.
func FuzzRequest(f *testing.F) {
	s, err := filestore.Open(filestore.Options{Path: filepath.Join(f.TempDir(), "fuzz.db"), Sync: time.Hour})
	require.NoError(f, err)
	f.Cleanup(func() { _ = s.Close() })
	handler := New(Config{Store: s, Settings: Settings{Thresholds: lastseen.Thresholds{
		Green:  time.Minute,
		Yellow: time.Hour,
	}, PingInterval: time.Second}})
	f.Add("GET", "/v1/namespaces/chat/users", "limit=1&status=green")
	f.Add("POST", "/v1/namespaces/chat/users/a%2Fb/ping", "")
	f.Add("GET", "/v1/namespaces//users/%2e%2e", "as_of=1&green=2&yellow=3")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		u, err := url.Parse(path)
		if err != nil || u.Path == "" || u.Path[0] != '/' {
			return
		}
		request := &http.Request{
			Method: method, URL: &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: query},
			Header: http.Header{}, Body: http.NoBody,
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		require.Less(t, recorder.Code, 500, "%s %s?%s: %s", method, path, query, recorder.Body)
	})
}
