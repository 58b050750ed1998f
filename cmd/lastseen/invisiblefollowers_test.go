package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// twinFollowers are clients that follow both namespaces, and cursors that others keep.
type twinFollowers struct {
	twins
	begun    time.Time
	watchers map[*twinWatcher]*twinWatcher // of the namespace whose users leave, and of the other
	places   []twinPlace
	marks    int
	callees  map[string]string // by user: whom callers call instead of the user who left; none is the same user
}

// twinPlace is a cursor in both namespaces, of the same request.
type twinPlace struct {
	path        string    // after the namespace, without a cursor
	credentials [2]string // of the same caller
	cursors     [2]string
	since       string // the phase
}

// keptPaths are the requests whose cursors are kept: of readers, and of users about themselves.
var keptPaths = []string{
	"/changes?", "/changes?user=alice&user=davey&user=erica&user=frank&user=marker",
	"/users?limit=1", "/users?order=oldest&limit=2", "/users?status=grey&limit=1",
	"/users/bobby/contacts?limit=1", "/changes?contacts_of=bobby",
}

// begin lets callers follow both namespaces on all servers.
func (w twins) begin(t *testing.T, begun time.Time) *twinFollowers {
	t.Helper()
	f := &twinFollowers{twins: w, begun: begun, watchers: map[*twinWatcher]*twinWatcher{}}
	for _, server := range w.servers {
		for _, reader := range w.readers(t) {
			hidden := w.follow(t, server, w.hidden, reader.name, reader.hidden)
			for i, left := range w.follow(t, server, w.left, reader.name, reader.left) {
				f.watchers[left] = hidden[i]
			}
		}
	}
	return f
}

// stranger is a user whom the users who left do not have among their contacts.
const stranger = "zelda"

// readers returns an API key and a user, bobby. Where users are visible to their contacts, it returns bobby, who is
// one, and the stranger.
func (w twins) readers(t *testing.T) []twinCaller {
	t.Helper()
	if w.toContacts {
		return []twinCaller{w.callerOf(t, "bobby"), w.callerOf(t, stranger)}
	}
	return []twinCaller{{"reader", "ls_left", "ls_hide", false}, w.callerOf(t, "bobby")}
}

// check compares what followers were sent since the last check: some changes, and that of the marker. If changes is
// negative, some user is seen to be online, whose time moves on: it compares only what cursors of the feed lead to.
// Otherwise, it compares what cursors of all earlier phases lead to, and all that others get.
func (f *twinFollowers) check(t *testing.T, phase string, changes int) {
	t.Helper()
	f.checkBoth(t, phase, changes, changes)
}

// checkBoth is check where those who follow everyone are sent another number of changes: all.
func (f *twinFollowers) checkBoth(t *testing.T, phase string, changes, all int) {
	t.Helper()
	f.marks++
	mark := exact(f.begun.Add(time.Duration(f.marks-10_000) * time.Millisecond))
	event := map[int]string{0: "ping", 1: "leave"}[f.marks%2]
	f.both(t, "POST", "/users/marker/"+event, fmt.Sprintf(`{"at":%q}`, mark))
	for left, hidden := range f.watchers {
		want, before := left.flush(t, mark)
		got, cursor := hidden.flush(t, mark)
		if changes < 0 {
			continue
		}
		require.Equal(t, want, got, "%s: %s", phase, left.way)
		require.Equal(t, entriesBefore(t, before), entriesBefore(t, cursor), "%s: %s", phase, left.way)
		if f.marks > 1 {
			count := all
			if strings.Contains(left.way, "alice") {
				count = changes
			}
			if strings.HasPrefix(left.way, stranger) {
				count = 0
			}
			require.Len(t, got, count, "%s: %s: %q", phase, left.way, got)
		}
	}
	f.comparePlaces(t, phase, changes < 0)
	f.keepPlaces(t, phase)
	if changes >= 0 {
		f.compare(t, phase)
		for _, user := range f.calledUsers() {
			f.compareCalls(t, phase, cmp.Or(f.callees[user], user), user)
		}
	}
}

// calledUsers returns the users to whom calls are compared in this turn: in full, all of them; otherwise alice, who
// says and does most, and one of the others.
func (f *twinFollowers) calledUsers() []string {
	if testenv.Full() {
		return twinUsers
	}
	return []string{twinUsers[0], twinUsers[1+*f.turn%2]}
}

// checkCounts compares the counts that followers were sent since the last call. If nothing but the marker has changed,
// there is one.
func (f *twinFollowers) checkCounts(t *testing.T, phase string, changes int) {
	t.Helper()
	r := send(t, f.servers[0], http.MethodGet, "/v1/namespaces/"+f.left+"/counts", "", "ls_left")
	var newest struct{ Green, Yellow, Grey, Total int }
	require.NoError(t, json.Unmarshal([]byte(r.body), &newest), r.body)
	text := fmt.Sprintf(`{"as_of":"NOW","green":%d,"yellow":%d,"grey":%d,"total":%d}`,
		newest.Green, newest.Yellow, newest.Grey, newest.Total)
	for left, hidden := range f.watchers {
		if !strings.Contains(left.way, "counts") {
			continue
		}
		want, got := left.flushCounts(t, text), hidden.flushCounts(t, text)
		if changes == 0 {
			require.Equal(t, want, got, phase)
			require.Len(t, got, 2, "%s: the last ones, and those of the marker: %q", phase, got)
		}
	}
}

// keepPlaces notes cursors of this moment.
func (f *twinFollowers) keepPlaces(t *testing.T, phase string) {
	t.Helper()
	for _, reader := range f.readers(t) {
		for _, path := range keptPaths {
			if reader.name != "bobby" && strings.Contains(path, "bobby") {
				continue
			}
			p := twinPlace{path: path, credentials: [2]string{reader.left, reader.hidden}, since: phase}
			for j, namespace := range []string{f.left, f.hidden} {
				r := send(t, f.servers[0], http.MethodGet, "/v1/namespaces/"+namespace+path, "", p.credentials[j])
				require.Equal(t, http.StatusOK, r.status, r.body)
				p.cursors[j] = cursorOf(t, r.body)
			}
			f.places = append(f.places, p)
		}
	}
}

// cursorOf returns the cursor of a response; "" if a list ends.
func cursorOf(t *testing.T, body string) string {
	t.Helper()
	var page struct {
		Cursor string
		Next   string `json:"next_cursor"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &page), body)
	return page.Cursor + page.Next
}

// comparePlaces compares what kept cursors lead to, on all servers: only those of the feed, or all.
func (f *twinFollowers) comparePlaces(t *testing.T, phase string, feedOnly bool) {
	t.Helper()
	for i, p := range f.places {
		if feedOnly && !strings.HasPrefix(p.path, "/changes") || feedOnly && strings.Contains(p.path, "contacts_of") {
			continue
		}
		server := f.servers[(i+f.marks)%len(f.servers)]
		same(t, phase+": "+p.path+" since "+p.since,
			func() response {
				return f.continued(t, server, f.left, f.hidden, p.path, p.credentials[0], p.cursors[0])
			},
			func() response {
				return f.continued(t, server, f.hidden, f.left, p.path, p.credentials[1], p.cursors[1])
			})
	}
}

// continued returns all responses after a cursor, as one.
func (f *twinFollowers) continued(t *testing.T, server, own, other, path, credential, cursor string) (all response) {
	t.Helper()
	for range 20 {
		r := askReady(t, server, http.MethodGet, "/v1/namespaces/"+own+path+"&cursor="+url.QueryEscape(cursor), "",
			credential)
		next, text := cursorOf(t, r.body), r.comparable(own, other)
		text.body = all.body + text.body
		all = text
		if next == "" || next == cursor || strings.HasPrefix(path, "/changes") {
			return all
		}
		cursor = next
	}
	assert.Fail(t, "the list does not end", path)
	return all
}
