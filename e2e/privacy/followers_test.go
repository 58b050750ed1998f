package privacy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keptPosition is a cursor of each site, after the same request.
type keptPosition struct {
	path              string // after the namespace, without a cursor
	caller            string
	first, last       [2]string // the first cursors, and those of the last phase
	sinceFirst, since string    // the phases
}

// keptPaths are the requests whose cursors are kept. In a room, nothing changes after that of strangersPath.
var keptPaths = []string{
	"/changes?", "/changes?user=alice&user=davey&user=erica&user=frank&user=marker", strangersPath,
	"/users?limit=1", "/users?order=oldest&limit=2", "/users?status=grey&limit=1",
	"/users/bobby/contacts?limit=1", "/changes?contacts_of=bobby",
}

const strangersPath = "/changes?user=alice&user=davey&user=erica&user=grace&user=zelda"

// readers returns those who follow: bobby and an API key, or in a room the stranger.
func (w *pair) readers(t *testing.T) map[string]string {
	t.Helper()
	readers := map[string]string{"bobby": w.gone.tokenOf(t, "bobby"), "reader": "ls_reader"}
	if w.gone.namespace == room {
		delete(readers, "reader")
		readers[stranger] = w.gone.tokenOf(t, stranger)
	}
	return readers
}

// follow lets readers follow both sites on all servers, in all ways.
func (w *pair) follow(t *testing.T) {
	t.Helper()
	some := []string{"alice", "bobby", "carla", "davey", "erica", "frank", "grace", "hank", "marker"}
	asked := []followQuery{{name: "some", users: some}, {name: "everyone"}}
	streams := slices.Clone(asked)
	if w.gone.namespace != room {
		streams = append(streams, followQuery{name: "counts", counts: true})
	}
	for reader, credential := range w.readers(t) {
		for i := range w.gone.servers {
			open := func(s site) []*observation {
				return append(s.openStreams(t, i, credential, streams...), s.openPolls(t, i, credential, asked...)...)
			}
			gone := open(w.gone)
			for j, hiding := range open(w.hiding) {
				gone[j].way, hiding.way = reader+" follows "+gone[j].way, reader+" follows "+hiding.way
				require.Equal(t, gone[j].begin(), hiding.begin(), hiding.way)
				w.observations[gone[j]] = hiding
			}
		}
	}
}

// flush changes the marker in both sites, and waits until it and n other users have reached all who follow. It returns
// what they were sent since the last call, in both sites. So each phase ends when all that it changed has arrived.
func (w *pair) flush(t *testing.T, phase string, n int) map[*observation][2][]string {
	t.Helper()
	w.marks++
	mark := exact(w.begun.Add(time.Duration(w.marks-10_000) * time.Millisecond))
	event := map[int]string{0: "leave", 1: "ping"}[w.marks%2]
	w.both(t, "POST", "/users/marker/"+event, fmt.Sprintf(`{"at":%q}`, mark))
	sent := map[*observation][2][]string{}
	for gone, hiding := range w.observations {
		expected := n
		if strings.HasPrefix(gone.way, stranger) {
			expected = 0
		}
		want, before := gone.flush(t, mark, expected)
		got, cursor := hiding.flush(t, mark, expected)
		sent[gone] = [2][]string{want, got}
		require.Equal(t, w.visible(t, before), w.visible(t, cursor), "%s: %s", phase, gone.way)
	}
	return sent
}

// check ends a phase, in which readers were sent n changes: it compares what these were, what cursors of earlier phases
// lead to, and all that others get.
func (w *pair) check(t *testing.T, phase string, n int) {
	t.Helper()
	for gone, sent := range w.flush(t, phase, n) {
		expected := n
		if strings.HasPrefix(gone.way, stranger) {
			expected = 0
		}
		require.Equal(t, sent[0], sent[1], "%s: %s", phase, gone.way)
		require.Len(t, sent[1], expected, "%s: %s: %q", phase, gone.way, sent[1])
	}
	w.comparePositions(t, phase)
	w.keepPositions(t, phase)
	w.compare(t, phase)
}

// checkCounts compares the counts that readers were sent since the last call. If still, these are the last ones and
// those of the marker.
func (w *pair) checkCounts(t *testing.T, phase string, still bool) {
	t.Helper()
	r := w.gone.send(t, 0, http.MethodGet, "/counts", "", "ls_reader")
	var all []string
	for _, field := range []string{"green", "yellow", "grey", "total"} {
		all = append(all, fmt.Sprintf(`%q:%v`, field, decoded(t, r.body)[field]))
	}
	newest := `{"as_of":"NOW",` + strings.Join(all, ",") + `}`
	for gone, hiding := range w.observations {
		if !strings.Contains(gone.way, "counts") {
			continue
		}
		want, got := gone.flushCounts(t, newest), hiding.flushCounts(t, newest)
		if still {
			require.Equal(t, want, got, phase)
			require.Len(t, got, 2, "%s: %q", phase, got)
		}
	}
}

var entriesPattern = regexp.MustCompile(`-(\d+)$`)

// visible returns what clients can see in a cursor of changes: in a room its length, elsewhere how many entries a
// feed has before it, in the embedded store.
func (w *pair) visible(t *testing.T, cursor string) string {
	t.Helper()
	content, err := base64.RawURLEncoding.DecodeString(cursor)
	require.NoError(t, err)
	if w.gone.namespace == room {
		return strconv.Itoa(len(cursor))
	}
	if position := entriesPattern.FindSubmatch(content); position != nil {
		return string(position[1])
	}
	return ""
}

// keepPositions notes cursors of this moment.
func (w *pair) keepPositions(t *testing.T, phase string) {
	t.Helper()
	first := len(w.positions) == 0
	if first {
		for caller := range w.readers(t) {
			for _, path := range keptPaths {
				if caller == "bobby" || !strings.Contains(path, "bobby") {
					w.positions = append(w.positions, &keptPosition{path: path, caller: caller, sinceFirst: phase})
				}
			}
		}
	}
	readers := w.readers(t)
	for _, p := range w.positions {
		p.since = phase
		for j, s := range []site{w.gone, w.hiding} {
			r := s.send(t, 0, http.MethodGet, p.path, "", readers[p.caller])
			require.Equal(t, http.StatusOK, r.status, r.body)
			p.last[j] = cursorOf(t, r.body)
		}
		if first {
			p.first = p.last
		}
	}
}

// cursorOf returns the cursor of a response; "" if a list ends.
func cursorOf(t *testing.T, body string) string {
	t.Helper()
	page := decoded(t, body)
	cursor, _ := page["cursor"].(string)
	next, _ := page["next_cursor"].(string)
	return cursor + next
}

// comparePositions compares what kept cursors lead to, on one of the servers each.
func (w *pair) comparePositions(t *testing.T, phase string) {
	t.Helper()
	readers := w.readers(t)
	for i, p := range w.positions {
		for since, cursors := range map[string][2]string{p.sinceFirst: p.first, p.since: p.last} {
			if since == p.sinceFirst && w.skips(i, 3) {
				continue
			}
			what := fmt.Sprintf("%s: %s by %s since %s", phase, p.path, p.caller, since)
			got := w.same(t, what, func(s site) response {
				cursor := cursors[0]
				if s.store == w.hiding.store {
					cursor = cursors[1]
				}
				return s.continued(t, i+w.turn, p.path, readers[p.caller], cursor)
			})
			if p.path == strangersPath && w.still {
				require.Contains(t, got.body, `"users":[]`, "%s: %s", phase, p.caller)
				require.Contains(t, got.body, `"reset":false`)
				require.Contains(t, got.body, fmt.Sprintf(`"cursor":%d`, len(cursors[1])))
			}
		}
	}
}

// continued returns all responses after a cursor, as one.
func (s site) continued(t *testing.T, server int, path, credential, cursor string) (all response) {
	t.Helper()
	for range 20 {
		r := s.send(t, server, http.MethodGet, path+"&cursor="+url.QueryEscape(cursor), "", credential)
		next, page := cursorOf(t, r.body), s.masked(r, false)
		page.body = all.body + page.body
		all = page
		if strings.HasPrefix(path, "/changes") {
			all.body = byUser(t, all.body)
			return all
		}
		if next == "" || next == cursor {
			return all
		}
		cursor = next
	}
	assert.Fail(t, "the list does not end", path)
	return all
}

// byUser returns a body whose changes are in the order of their users. A feed reads its shards apart: the moments at
// which it does so decide in which order it has changes of different shards.
func byUser(t *testing.T, body string) string {
	t.Helper()
	var page struct {
		Users []json.RawMessage `json:"users"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &page), body)
	users := make([]string, len(page.Users))
	for i, user := range page.Users {
		users[i] = string(user)
	}
	sent := strings.Join(users, ",")
	slices.Sort(users)
	require.Contains(t, body, sent)
	return strings.Replace(body, sent, strings.Join(users, ","), 1)
}

// wait begins requests that wait for changes in the site whose users hide, as the readers. It returns a function that
// checks that nothing ended them before their time.
func (w *pair) wait(t *testing.T) (check func()) {
	t.Helper()
	const wait = 2 * time.Second
	type ended struct {
		took time.Duration
		body string
		err  error
	}
	results := make(chan ended, 4)
	lengths := map[int]bool{} // of sealed cursors
	for _, credential := range w.readers(t) {
		for _, path := range []string{"/changes?", strangersPath} {
			cursor := cursorOf(t, w.hiding.send(t, 0, http.MethodGet, path, "", credential).body)
			if w.hiding.namespace == room {
				lengths[len(cursor)] = true
			}
			target := w.hiding.server(0) + w.hiding.namespace + path + "&wait=" + wait.String() + "&cursor="
			go func() {
				begun := time.Now()
				body, err := fetch(t.Context(), target+url.QueryEscape(cursor), credential)
				results <- ended{time.Since(begun), body, err}
			}()
		}
	}
	return func() {
		t.Helper()
		for range cap(results) {
			e := <-results
			require.NoError(t, e.err)
			require.Contains(t, e.body, `"users":[]`)
			require.GreaterOrEqual(t, e.took, wait)
			require.True(t, len(lengths) == 0 || lengths[len(cursorOf(t, e.body))], "the length of the cursor remains")
		}
	}
}
