package main

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// probe is a request by which a caller could learn something about a user.
type probe struct {
	operation string // "METHOD /path" as in the OpenAPI document
	path      string // %n is the namespace, %u the user
	body      string
	headers   []string
	writes    bool // so it must be refused
	refused   bool // also to readers
	head      bool // also with the method HEAD
}

// twinUsers are the users who leave or are invisible: one says something that ends, one something without an end, and
// one has never been seen before.
var twinUsers = []string{"alice", "davey", "erica"}

const (
	nsPath      = "/v1/namespaces/{namespace}"
	userPath    = nsPath + "/users/{user}"
	availPath   = userPath + "/availability"
	contactPath = userPath + "/contacts"
	future      = "as_of=2100-01-01T00:00:00Z"
)

// twinProbes are the requests that are compared. Those without {user} in the operation are sent once.
var twinProbes = []probe{
	{operation: "GET " + userPath, path: "%n/users/%u", head: true},
	{operation: "GET " + userPath, path: "%n/users/%u?green=30m&yellow=1h"},
	{operation: "GET " + userPath, path: "%n/users/%u?" + future, head: true},
	{operation: "GET " + userPath, path: "%n/users/%u?as_of=1"},
	{operation: "GET " + userPath + "/dot.svg", path: "%n/users/%u/dot.svg", head: true},
	{operation: "GET " + userPath + "/dot.svg", path: "%n/users/%u/dot.svg?size=32&" + future},
	{operation: "GET " + userPath + "/devices", path: "%n/users/%u/devices", head: true},
	{operation: "GET " + nsPath + "/lookup", path: "%n/lookup?user=alice&user=davey&user=erica&user=bobby&user=frank"},
	{operation: "GET " + nsPath + "/lookup", path: "%n/lookup?user=alice&user=davey&user=erica&" + future, head: true},
	{
		operation: "GET " + nsPath + "/lookup", headers: []string{"Accept-Encoding: gzip"},
		path: "%n/lookup?" + strings.Repeat("user=alice&user=davey&user=erica&user=carla&", 9) + future,
	},
	{operation: "POST " + nsPath + "/lookup", path: "%n/lookup", body: `{"users":["erica","alice","eve","davey"]}`},
	{operation: "GET " + nsPath + "/users", path: "%n/users"},
	{operation: "GET " + nsPath + "/users", path: "%n/users?order=oldest&" + future, head: true},
	{operation: "GET " + nsPath + "/users", path: "%n/users?status=grey"},
	{operation: "GET " + nsPath + "/users", path: "%n/users?status=green"},
	{operation: "GET " + nsPath + "/users", path: "%n/users?limit=1"},
	{operation: "GET " + nsPath + "/users", path: "%n/users?limit=2&offset=1"},
	{operation: "GET " + nsPath + "/users", path: "%n/users?from=1&to=2100-01-01T00:00:00Z&" + future},
	{operation: "GET " + nsPath + "/counts", path: "%n/counts"},
	{operation: "GET " + nsPath + "/counts", path: "%n/counts?from=1&" + future},
	{operation: "GET " + nsPath + "/changes", path: "%n/changes?user=alice&user=davey&user=erica"},
	{operation: "GET " + nsPath + "/changes", path: "%n/changes"},
	{operation: "GET " + nsPath + "/changes", path: "%n/changes?cursor=x&user=alice", refused: true},
	{operation: "POST " + nsPath + "/changes", path: "%n/changes", body: `{"users":["alice","erica","davey","bobby"]}`},
	{operation: "GET " + nsPath + "/changes", path: "%n/changes?contacts_of=bobby", refused: true},
	{operation: "POST " + nsPath + "/changes", path: "%n/changes", body: `{"contacts_of":"bobby"}`, refused: true},
	{operation: "GET /v1/namespaces", path: "", head: true},
	{operation: "GET " + nsPath, path: "%n", head: true},
	{operation: "GET " + contactPath, path: "%n/users/bobby/contacts", refused: true},
	{operation: "GET " + contactPath, path: "%n/users/bobby/contacts?status=grey&limit=2&" + future, refused: true},
	{operation: "GET " + contactPath, path: "%n/users/%u/contacts", refused: true},
	{operation: "GET " + availPath, path: "%n/users/%u/availability", head: true, refused: true},

	{operation: "PUT " + availPath, path: "%n/users/%u/availability", body: `{"availability":"busy"}`, writes: true},
	{operation: "DELETE " + availPath, path: "%n/users/%u/availability", writes: true},
	{operation: "PUT " + contactPath, path: "%n/users/%u/contacts", body: `{"users":["bobby"]}`, writes: true},
	{operation: "PATCH " + contactPath, path: "%n/users/%u/contacts", body: `{"add":["bobby"]}`, writes: true},
	{operation: "DELETE " + contactPath, path: "%n/users/%u/contacts", writes: true},
	{operation: "POST " + userPath + "/ping", path: "%n/users/%u/ping", writes: true},
	{operation: "POST " + userPath + "/leave", path: "%n/users/%u/leave", writes: true},
	{operation: "POST " + nsPath + "/pings", path: "%n/pings", body: `{"pings":[{"user":"alice"}]}`, writes: true},
	{operation: "POST " + nsPath + "/leaves", path: "%n/leaves", body: `{"leaves":[{"user":"alice"}]}`, writes: true},
	{operation: "DELETE " + userPath, path: "%n/users/%u", writes: true},
	{operation: "DELETE " + userPath + "/connections", path: "%n/users/%u/connections", writes: true},
	{operation: "DELETE " + nsPath, path: "%n?confirm=%n", writes: true},
}

// notAboutUsers are the operations whose responses depend on no user.
var notAboutUsers = []string{"GET /healthz", "GET /readyz", "GET /version"}

// comparedByFrames are the operations that [twins.compareFrames] compares.
var comparedByFrames = []string{"GET " + nsPath + "/connect"}

// comparedAsCalls are the operations that [twins.compareCalls] compares: responses to them depend on the calls that
// the caller began before.
var comparedAsCalls = []string{
	"POST " + nsPath + "/calls", "GET " + nsPath + "/calls", "GET " + nsPath + "/calls/{id}",
	"POST " + nsPath + "/calls/{id}/accept", "POST " + nsPath + "/calls/{id}/reject",
	"POST " + nsPath + "/calls/{id}/end", "POST " + nsPath + "/calls/{id}/alive",
}

// TestTwinsCompareAllOperations fails if the OpenAPI document has an operation that the comparison leaves out.
func TestTwinsCompareAllOperations(t *testing.T) {
	t.Parallel()
	compared := slices.Concat(notAboutUsers, comparedByFrames, comparedAsCalls)
	for _, p := range twinProbes {
		compared = append(compared, p.operation)
	}
	slices.Sort(compared)
	require.Equal(t, operations(t, start(t)), slices.Compact(compared))
}

// twinCaller is a caller who cannot write for the users who left.
type twinCaller struct {
	name, left, hidden string // credentials in the two namespaces
	writes             bool   // all users or namespaces, without the right to read what the users say
}

// callerOf returns a user as a caller.
func (w twins) callerOf(t *testing.T, user string) twinCaller {
	t.Helper()
	return twinCaller{user, bearerOf(t, user, w.left), bearerOf(t, user, w.hidden), false}
}

// callers returns callers of all kinds. Where users are visible to their contacts, they are a contact and a stranger:
// to the others, it makes no difference.
func (w twins) callers(t *testing.T) []twinCaller {
	t.Helper()
	if w.toContacts {
		return w.readers(t)
	}
	callers := []twinCaller{
		{name: "anonymous"},
		{"reader", "ls_left", "ls_hide", false},
		{"outside", "ls_outside", "ls_outside", false},
		{"unknown", "ls_unknown", "ls_unknown", false},
		{"admin", "ls_admin", "ls_admin", true},
		{"alice elsewhere", bearerOf(t, "alice", "else"), bearerOf(t, "alice", "else"), false},
		w.callerOf(t, "bobby"), w.callerOf(t, stranger),
	}
	if !w.open { // otherwise it reads, too, and may know what the users say
		callers = append(callers, twinCaller{"writer", "ls_writer", "ls_writer", true})
	}
	return callers
}

// compare compares what all callers get about the users in both namespaces, on all servers: see [twins.skips].
func (w twins) compare(t *testing.T, phase string) {
	t.Helper()
	*w.turn++
	number := 0
	for i, server := range w.servers {
		for _, caller := range w.callers(t) {
			for _, p := range twinProbes {
				number++
				if w.skips(number) || p.writes && caller.writes {
					continue
				}
				for _, user := range twinUsers {
					w.compareProbe(t, phase, server, caller, p, user)
					if !strings.Contains(p.path, "%u") {
						break
					}
				}
			}
		}
		if testenv.Full() || *w.turn%len(w.servers) == i {
			w.compareFrames(t, phase, server)
		}
	}
}

func (w twins) compareProbe(t *testing.T, phase, server string, caller twinCaller, p probe, user string) {
	t.Helper()
	method, _, _ := strings.Cut(p.operation, " ")
	methods := []string{method}
	if p.head {
		methods = append(methods, http.MethodHead)
	}
	for _, method := range methods {
		what := fmt.Sprintf("%s: %s %s of %s by %s", phase, method, p.path, user, caller.name)
		ask := func(namespace, other, credential string, headers ...string) response {
			path := strings.NewReplacer("%n", "/"+namespace, "%u", user).Replace(p.path)
			path = strings.Replace(path, "confirm=/", "confirm=", 1)
			r := send(t, server, method, "/v1/namespaces"+path, p.body, credential, append(p.headers, headers...)...)
			if refused := r.status >= 400; p.writes || caller.name == "reader" {
				require.Equal(t, p.writes || p.refused, refused, "%s: %d", what, r.status)
			}
			return r.comparable(namespace, other)
		}
		compare := func(what string, headers ...string) response {
			return same(t, what,
				func() response { return ask(w.left, w.hidden, caller.left, headers...) },
				func() response { return ask(w.hidden, w.left, caller.hidden, headers...) })
		}
		if tag := compare(what).header.Get("Etag"); tag != "" {
			compare(what+" again", "If-None-Match: "+tag)
		}
	}
}

// same fails the test if two responses differ. If a status can have decayed between the two, it asks again.
func same(t *testing.T, what string, left, hidden func() response) response {
	t.Helper()
	var got response
	for range 20 {
		before := left()
		got = hidden()
		if assert.ObjectsAreEqual(before, got) {
			return got
		}
		if after := left(); assert.ObjectsAreEqual(before, after) {
			require.Equal(t, before, got, what)
		}
	}
	t.Fatalf("%s: the response changes all the time: %+v", what, got)
	return got
}

var ownMasks = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	{regexp.MustCompile(`"as_of":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`), `"as_of":"NOW"`},
	{regexp.MustCompile(`"(cursor|request_id|connection)":"[^"]+"`), `"$1":"RANDOM"`},
	{regexp.MustCompile(`"(poll_after_ms|expires_in_ms)":\d+`), `"$1":N`},
}

// comparable returns a response without what differs from one request to the next. Content-Length remains only where
// it is not the length of the body.
func (r response) comparable(own, other string) response {
	if r.header.Get("Content-Length") == strconv.Itoa(len(r.body)) {
		r.header.Del("Content-Length")
	}
	r.header.Del("Date")
	if r.header.Get("Lastseen-Ping-After-Ms") != "" {
		r.header.Set("Lastseen-Ping-After-Ms", "random")
	}
	r.body = maskOwn(r.body, own, other)
	return r
}

// entryPattern matches a namespace in a list.
var entryPattern = regexp.MustCompile(`\{"namespace":"[^"]*","last_ping":("[^"]*"|null)\}`)

// maskOwn hides the names of the namespaces, and what differs from one request to the next.
func maskOwn(text, own, other string) string {
	for _, m := range ownMasks {
		text = m.pattern.ReplaceAllString(text, m.mask)
	}
	text = cursorPattern.ReplaceAllStringFunc(text, func(s string) string { // it has the name of the namespace
		return fmt.Sprintf(`"next_cursor":%d`, len(s))
	})
	text = strings.NewReplacer(own, "OWN", other, "OTHER", "left-", "ELSE-", "hide-", "ELSE-").Replace(text)
	entries := entryPattern.FindAllString(text, -1)
	slices.Sort(entries)
	return entryPattern.ReplaceAllString(text, "") + strings.Join(entries, "")
}

var cursorPattern = regexp.MustCompile(`"next_cursor":"[^"]*"`)
