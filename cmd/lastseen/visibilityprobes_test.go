package main

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// visibleProbes are requests about users who do see each other, besides [twinProbes], which are about strangers. %t is
// the time when the test began.
var visibleProbes = []probe{
	{path: "%n/users/carla?as_of=%t", head: true},
	{path: "%n/users/carla/devices"},
	{path: "%n/users/carla/dot.svg"},
	{path: "%n/users/grace?as_of=%t", head: true},
	{path: "%n/users/hank?as_of=%t"},
	{path: "%n/users/bobby?as_of=%t", head: true},
	{path: "%n/users/bobby/devices"},
	{path: "%n/users/zelda?as_of=%t"},
	{path: "%n/users/zelda/contacts?as_of=%t"},
	{path: "%n/users/young/devices"},
	{path: "%n/lookup?user=carla&user=alice&user=grace&user=hank&user=bobby&user=zelda&as_of=%t", head: true},
	{path: "%n/lookup", body: `{"users":["grace","alice","carla","alice","bobby","hank"]}`},
	{path: "%n/counts?as_of=%t"},
	{path: "%n/counts?as_of=%t&from=1&green=5m&yellow=1h"},
	{path: "%n/users?as_of=%t&from=1&to=%t&limit=3&offset=1"},
	{path: "%n/users?as_of=%t&offset=999&limit=1"},
	{path: "%n/users?cursor=x"},
	{path: "%n/users/bobby/contacts?cursor=x"},
	{path: "%n/changes?user=grace&user=hank&user=alice&user=bobby"},
	{path: "%n/changes", body: `{"users":[]}`},
	{path: "%n/changes", body: `{"users":["grace","hank","carla","frank"],"limit":1}`},
	{path: "%n/connect"},
	{path: "/else/users"},
	{path: "?limit=1"},
}

// walks are the lists whose pages are compared, one after the other, with their cursors.
func walks() (all []string) {
	for _, order := range []string{"newest", "oldest"} {
		for _, statuses := range []string{"", "&status=green", "&status=yellow&status=grey", "&status=grey"} {
			for _, limit := range []string{"1", "2", "1000"} {
				all = append(all, "/users?as_of=%t&green=5m&yellow=1h&order="+order+statuses+"&limit="+limit)
			}
		}
	}
	for _, statuses := range []string{"", "&status=green", "&status=grey"} {
		all = append(all, "/users/bobby/contacts?as_of=%t"+statuses+"&limit=2")
	}
	return all
}

// callers returns callers who see the same in both worlds, with their credentials: bobby each time, the others now and
// then. Keys with the scope read do not.
func (v *strangersTest) callers(t *testing.T) map[string]string {
	t.Helper()
	callers := map[string]string{"bobby": roomToken(t, "bobby")}
	if v.marks%3 == 2 {
		callers["anonymous"], callers["outside"], callers["unknown"] = "", "ls_outside", "ls_unknown"
		for _, user := range []string{"carla", "zelda", "young"} {
			callers[user] = roomToken(t, user)
		}
	}
	return callers
}

// compare compares what callers get in both worlds, on all servers.
func (v *strangersTest) compare(t *testing.T, phase string) {
	t.Helper()
	for i := range v.quiet.servers {
		for name, credential := range v.callers(t) {
			for _, p := range visibleProbes {
				v.compareProbe(t, i, phase+": "+name, credential, p)
			}
			for _, p := range twinProbes {
				for _, user := range twinUsers {
					asked := p
					asked.path = strings.ReplaceAll(p.path, "%u", user)
					v.compareProbe(t, i, phase+": "+name, credential, asked)
					if asked.path == p.path {
						break
					}
				}
			}
			v.compareFrames(t, i, phase+": "+name, credential)
		}
		for _, walk := range walks() {
			v.compareWalk(t, i, phase, walk)
		}
		v.comparePolls(t, i, phase)
	}
}

// path returns the path of a probe.
func (v *strangersTest) path(template string) string {
	path := strings.NewReplacer("confirm=%n", "confirm=room", "%n", "/room", "%t", exact(v.begun)).Replace(template)
	return "/v1/namespaces" + path
}

// compareProbe compares the responses to a request. They must have an error if the request would write.
func (v *strangersTest) compareProbe(t *testing.T, server int, who, credential string, p probe) {
	t.Helper()
	method, _, named := strings.Cut(p.operation, " ")
	switch {
	case !named && p.body != "":
		method = http.MethodPost
	case !named:
		method = http.MethodGet
	}
	methods := []string{method}
	if p.head {
		methods = append(methods, http.MethodHead)
	}
	for _, method := range methods {
		what := fmt.Sprintf("%s: %s %s", who, method, p.path)
		compare := func(headers ...string) response {
			in := func(w world) func() response {
				return func() response {
					all := append(slices.Clone(p.headers), headers...)
					r := askReady(t, w.servers[server], method, v.path(p.path), p.body, credential, all...)
					require.False(t, p.writes && r.status < 400, "%s: %d", what, r.status)
					return r.masked(strings.Contains(p.path, "%t") || strings.Contains(p.path, future))
				}
			}
			return sameIn(t, what, in(v.quiet), in(v.busy))
		}
		if tag := compare().header.Get("Etag"); tag != "" {
			compare("If-None-Match: " + tag)
		}
	}
}

// compareFrames compares the first frame of connections that follow strangers, everyone, or counts.
func (v *strangersTest) compareFrames(t *testing.T, server int, who, credential string) {
	t.Helper()
	for _, watch := range []string{
		`{"users":["alice","davey","erica","bobby","grace"]}`, `{"everyone":true}`, `{"counts":true}`,
		`{"users":["hank"],"counts":true}`,
	} {
		in := func(w world) func() response {
			return func() response {
				socket := dialTwin(t, w.servers[server], "room")
				defer socket.CloseNow()
				writeFrame(t, socket, `{"hello":{"watch":`+watch+tokenField(credential)+`}}`)
				_, frame, err := socket.Read(t.Context())
				require.NoError(t, err)
				if strings.Contains(watch, "counts") {
					require.Contains(t, string(frame), `{"problem"`, who)
				}
				return response{body: maskWorld(string(frame), false)}
			}
		}
		sameIn(t, who+" watches "+watch, in(v.quiet), in(v.busy))
	}
}

// compareWalk compares all pages of a list of bobby. The cursor of the one world continues in the other, too.
func (v *strangersTest) compareWalk(t *testing.T, server int, phase, walk string) {
	t.Helper()
	credential, path := roomToken(t, "bobby"), v.path("%n"+walk)
	first := path
	for page := 0; ; page++ {
		in := func(w world) func() response {
			return func() response {
				r := askReady(t, w.servers[server], http.MethodGet, path, "", credential)
				require.Equal(t, http.StatusOK, r.status, r.body)
				return r.masked(true)
			}
		}
		got := sameIn(t, fmt.Sprintf("%s: page %d of %s", phase, page, walk), in(v.quiet), in(v.busy))
		for _, stranger := range twinUsers {
			listed := strings.Contains(got.body, `"user":"`+stranger+`","status":"grey","last_seen":null`)
			require.Equal(t, listed, strings.Contains(got.body, `"user":"`+stranger+`"`), got.body)
		}
		next, more := decoded(t, got.body)["next_cursor"].(string)
		if !more {
			return
		}
		require.Less(t, page, 20, "the list does not end")
		path = first + "&cursor=" + url.QueryEscape(next)
	}
}

// comparePolls compares polls that continue after those of the phase before. Where nobody seen has changed, they have
// nothing, and the same cursor.
func (v *strangersTest) comparePolls(t *testing.T, server int, phase string) {
	t.Helper()
	for _, user := range []string{"bobby", "zelda", "young"} {
		for query, still := range map[string]bool{
			"user=alice&user=davey&user=erica&user=grace&user=zelda": true,
			"user=carla&user=alice&user=hank&user=marker":            user == "young",
			"": user == "young",
		} {
			if v.places[user+query] == "" { // the first response continues differently
				v.comparePoll(t, server, phase, user, query)
				v.comparePoll(t, server, phase, user, query)
			}
			place := v.places[user+query]
			answer := v.comparePoll(t, server, phase, user, query)
			if still {
				require.Equal(t, []any{}, answer["users"], "%s: %s polls %s", phase, user, query)
				require.Equal(t, false, answer["reset"], "%s: %s polls %s", phase, user, query)
				require.Equal(t, place, answer["cursor"], "%s: %s polls %s", phase, user, query)
			}
		}
	}
}

// comparePoll compares a poll that continues after the last one with the same query.
func (v *strangersTest) comparePoll(t *testing.T, server int, phase, user, query string) map[string]any {
	t.Helper()
	path := room + "/changes?" + query
	if place := v.places[user+query]; place != "" {
		path += "&cursor=" + url.QueryEscape(place)
	}
	in := func(w world) func() response {
		return func() response {
			return askReady(t, w.servers[server], http.MethodGet, path, "", roomToken(t, user)).masked(false)
		}
	}
	got := sameIn(t, fmt.Sprintf("%s: %s polls %s", phase, user, query), in(v.quiet), in(v.busy))
	require.Equal(t, http.StatusOK, got.status, got.body)
	answer := decoded(t, got.body)
	v.places[user+query] = answer["cursor"].(string)
	return answer
}
