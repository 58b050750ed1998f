package privacy

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// pairUsers are the users who leave or hide: one sets an availability that ends, one without an end, and one has
// never been seen before.
var pairUsers = []string{"alice", "davey", "erica"}

// stranger is a user whom pairUsers do not have among their contacts.
const stranger = "zelda"

const future = "as_of=2100-01-01T00:00:00Z"

// twinReads are requests by which a caller could learn something about a user: method, path and body. %n is the
// namespace, %u each of pairUsers, and %t the time when the test began.
var twinReads = []string{
	"GET %n/users/%u", "HEAD %n/users/%u", "GET %n/users/%u?green=30m&yellow=1h", "GET %n/users/%u?as_of=1",
	"GET %n/users/%u?" + future, "HEAD %n/users/%u?" + future,
	"GET %n/users/%u/dot.svg", "HEAD %n/users/%u/dot.svg", "GET %n/users/%u/dot.svg?size=32&" + future,
	"GET %n/users/%u/devices", "HEAD %n/users/%u/devices",
	"GET %n/lookup?user=alice&user=davey&user=erica&user=bobby&user=frank",
	"GET %n/lookup?user=alice&user=davey&user=erica&" + future, "HEAD %n/lookup?user=alice&" + future,
	"GET %n/lookup?gzip&" + strings.Repeat("user=alice&user=davey&user=erica&user=carla&", 9) + future,
	`POST %n/lookup {"users":["erica","alice","eve","davey"]}`,
	`POST %n/lookup {"users":["grace","alice","carla","alice","bobby","hank"]}`,
	"GET %n/users", "GET %n/users?order=oldest&" + future, "HEAD %n/users?order=oldest&" + future,
	"GET %n/users?status=grey", "GET %n/users?status=green", "GET %n/users?limit=1", "GET %n/users?limit=2&offset=1",
	"GET %n/users?from=1&to=2100-01-01T00:00:00Z&" + future, "GET %n/users?as_of=%t&from=1&to=%t&limit=3&offset=1",
	"GET %n/counts", "GET %n/counts?from=1&" + future, "GET %n/counts?as_of=%t&from=1&green=5m&yellow=1h",
	"GET %n/changes?user=alice&user=davey&user=erica", "GET %n/changes",
	`POST %n/changes {"users":["alice","erica","davey","bobby"]}`,
	`POST %n/changes {"users":["grace","hank","carla","frank"],"limit":1}`,
	"GET /v1/namespaces", "HEAD /v1/namespaces", "GET /v1/namespaces?limit=1", "GET %n", "HEAD %n",
	"GET %n/users/carla?as_of=%t", "GET %n/users/bobby?as_of=%t", "GET %n/users/bobby/devices",
	"GET %n/users/grace?as_of=%t", "GET %n/users/hank?as_of=%t", "GET %n/users/carla/dot.svg",
}

// refusedToReaders are more of them, which have an error for keys that can only read.
var refusedToReaders = []string{
	"GET %n/changes?cursor=x&user=alice", "GET %n/users?cursor=x", "GET %n/users/bobby/contacts",
	"GET %n/changes?contacts_of=bobby", `POST %n/changes {"contacts_of":"bobby"}`,
	"GET %n/users/bobby/contacts?status=grey&limit=2&" + future, "GET %n/users/%u/contacts",
	"GET %n/users/%u/availability", "HEAD %n/users/%u/availability",
}

// refusedWrites are requests that write. They have an error for all callers, unless they can write for all users.
var refusedWrites = []string{
	`PUT %n/users/%u/availability {"availability":"busy"}`, "DELETE %n/users/%u/availability",
	`PUT %n/users/%u/contacts {"users":["bobby"]}`, `PATCH %n/users/%u/contacts {"add":["bobby"]}`,
	"DELETE %n/users/%u/contacts", "POST %n/users/%u/ping", "POST %n/users/%u/leave",
	`POST %n/pings {"pings":[{"user":"alice"}]}`, `POST %n/leaves {"leaves":[{"user":"alice"}]}`,
	"DELETE %n/users/%u", "DELETE %n/users/%u/connections", "DELETE %n?confirm=%n",
}

// comparedOtherwise are the operations that depend on no user, that [pair.compareFrames] compares, and calls, which
// TestHiddenCallees of the package api and TestCallersOfInvisible compare.
var comparedOtherwise = []string{
	"GET /healthz", "GET /readyz", "GET /version", "GET %n/connect", "POST %n/calls", "GET %n/calls",
	"GET %n/calls/{id}", "POST %n/calls/{id}/accept", "POST %n/calls/{id}/reject", "POST %n/calls/{id}/end",
	"POST %n/calls/{id}/alive", "GET /v1/webhooks", "POST /v1/webhooks/{webhook}/test",
	"POST /v1/webhooks/{webhook}/enable",
}

// TestTwinsCompareAllOperations fails if the OpenAPI document has an operation that the comparison leaves out.
func TestTwinsCompareAllOperations(t *testing.T) {
	t.Parallel()
	user := regexp.MustCompile(`/users/[^/]+`)
	var compared []string
	for _, p := range slices.Concat(twinReads, refusedToReaders, refusedWrites, comparedOtherwise) {
		if strings.HasPrefix(p, "HEAD") {
			continue
		}
		method, path, _ := strings.Cut(p, " ")
		path, _, _ = strings.Cut(path, " ")
		path, _, _ = strings.Cut(path, "?")
		path = strings.Replace(path, "%n", "/v1/namespaces/{namespace}", 1)
		compared = append(compared, method+" "+user.ReplaceAllString(path, "/users/{user}"))
	}
	slices.Sort(compared)
	require.Equal(t, testserver.Start(t).Operations(t), slices.Compact(compared))
}

// callers returns the credentials of callers who cannot write for the users who left. In a room, they are a contact and
// a stranger: keys that can read see everyone.
func (w *pair) callers(t *testing.T) map[string]string {
	t.Helper()
	callers := map[string]string{
		"anonymous": "", "outside": "ls_outside", "unknown": "ls_unknown",
		"alice elsewhere": bearerOf(t, "alice", "else"),
		"bobby":           w.gone.tokenOf(t, "bobby"), stranger: w.gone.tokenOf(t, stranger),
	}
	if w.gone.namespace != room {
		callers["reader"], callers["admin"] = "ls_reader", "ls_admin"
	}
	if w.gone.namespace == hall { // in a yard it reads as well, and may know the availability of the users
		callers["writer"] = "ls_writer"
	}
	return callers
}

// skips reports whether to leave out the comparison with a number in this turn. In full, each turn has all; otherwise,
// it has one in n, and the next turns the others.
func (w *pair) skips(number, n int) bool { return !testenv.Full() && (number+w.turn)%n != 0 }

// compare compares what all callers get in both sites, on all servers.
func (w *pair) compare(t *testing.T, phase string) {
	t.Helper()
	w.turn++
	callers := w.callers(t)
	number := 0
	for i := range w.gone.servers {
		for _, caller := range slices.Sorted(maps.Keys(callers)) {
			n := 4
			if w.refusesAll(caller) {
				n = 24
			}
			for _, p := range slices.Concat(twinReads, refusedToReaders, refusedWrites) {
				for _, user := range pairUsers {
					if number++; !w.skips(number, n) {
						w.compareProbe(t, phase, i, caller, callers[caller], p, user)
					}
					if !strings.Contains(p, "%u") {
						break
					}
				}
			}
			if number++; !w.skips(number, 3) {
				w.compareFrames(t, phase, i, caller, callers[caller])
			}
		}
	}
}

// refusesAll reports whether a caller gets nothing but errors, which tell little.
func (w *pair) refusesAll(caller string) bool {
	return slices.Contains([]string{"outside", "unknown", "alice elsewhere"}, caller) ||
		caller == "anonymous" && w.gone.namespace != yard
}

// compareProbe compares the responses to a request, and to the same one with their ETag.
func (w *pair) compareProbe(t *testing.T, phase string, server int, caller, credential, p, user string) {
	t.Helper()
	writes := slices.Contains(refusedWrites, p)
	if writes && (caller == "writer" || caller == "admin") {
		return
	}
	what := fmt.Sprintf("%s: %s of %s by %s on server %d", phase, p, user, caller, server)
	method, path, _ := strings.Cut(p, " ")
	path, body, _ := strings.Cut(path, " ")
	fixed := strings.Contains(path, future) || strings.Contains(path, "%t")
	path = strings.NewReplacer("confirm=%n", "confirm="+w.gone.name(), "%n", w.gone.namespace, "%u", user,
		"%t", exact(w.begun), "gzip&", "").Replace(path)
	compare := w.same
	switch {
	case strings.Contains(p, "/changes"):
		compare = w.sameSoon
	case w.gone.namespace == yard:
		compare = w.sameByClock
	}
	ask := func(headers ...string) response {
		if strings.Contains(p, "gzip") {
			headers = append(headers, "Accept-Encoding: gzip")
		}
		return compare(t, what, func(s site) response {
			r := s.request(t, server, method, path, body, credential, headers...)
			if refused := r.status >= 400; writes || caller == "reader" {
				require.Equal(t, writes || slices.Contains(refusedToReaders, p), refused, "%s: %d", what, r.status)
			}
			return s.masked(r, fixed)
		})
	}
	if tag := ask().header.Get("Etag"); tag != "" {
		ask("If-None-Match: " + tag)
	}
}

// compareFrames compares the first frame of connections that follow the users, everyone or counts, and how those end
// that may not. In a room, nobody gets counts.
func (w *pair) compareFrames(t *testing.T, phase string, server int, caller, credential string) {
	t.Helper()
	for _, watch := range []string{
		`{"users":["alice","davey","erica","bobby","grace"]}`, `{"everyone":true}`, `{"users":["hank"],"counts":true}`,
	} {
		what := fmt.Sprintf("%s: %s watches %s on server %d", phase, caller, watch, server)
		w.sameSoon(t, what, func(s site) response {
			socket := s.dial(t, server, `{"hello":{"watch":`+watch+tokenField(credential)+`}}`)
			defer socket.CloseNow()
			frame := socket.next(t, what)
			if s.namespace == room && strings.Contains(watch, "counts") {
				require.Contains(t, frame, `{"problem"`, what)
			}
			return response{status: http.StatusOK, body: s.mask(frame, false)}
		})
	}
}
