package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/filestore"
)

// call is a request from an example in the document.
type call struct {
	operation, method, path string
	query                   url.Values
	rawQuery, body          string // rawQuery replaces query
	headers                 []string
}

func (c call) send(w *testServer) testResponse {
	query := c.query.Encode()
	if c.rawQuery != "" {
		query = c.rawQuery
	}
	return w.sendTo(c.method, c.path+"?"+query, c.body, c.headers...)
}

// exampleCalls returns the examples of requests by operation and name. They have all required parameters and no
// others.
func exampleCalls(t *testing.T, doc *openapi3.T) map[string]call {
	t.Helper()
	calls := map[string]call{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.OperationID == "connect" {
				continue // which is no call: see upgrades
			}
			c := call{operation: operation.OperationID, method: method, path: path, query: url.Values{}}
			for _, p := range operation.Parameters {
				switch value := p.Value.Example.(type) {
				case string:
					if p.Value.In == openapi3.ParameterInPath {
						c.path = strings.ReplaceAll(c.path, "{"+p.Value.Name+"}", value)
					} else {
						c.query.Set(p.Value.Name, value)
					}
				case []any:
					for _, v := range value {
						c.query.Add(p.Value.Name, v.(string))
					}
				}
			}
			for name, body := range requestExamples(operation) {
				c.body, c.headers = body, nil
				if strings.HasPrefix(name, mediaNDJSON) {
					c.headers = []string{ndjson}
				}
				calls[c.operation+" "+name] = c
			}
		}
	}
	return calls
}

// requestExamples returns the bodies of the examples by "media name", or an empty body if there are none.
func requestExamples(operation *openapi3.Operation) map[string]string {
	if operation.RequestBody == nil {
		return map[string]string{"": ""}
	}
	bodies := map[string]string{}
	for media, content := range operation.RequestBody.Value.Content {
		for name, value := range examplesOf(content) {
			if text, ok := value.(string); ok {
				bodies[media+" "+name] = text
				continue
			}
			encoded, _ := json.Marshal(value)
			bodies[media+" "+name] = string(encoded)
		}
	}
	return bodies
}

// examplesOf returns the examples of a body by name. A single example has an empty name.
func examplesOf(content *openapi3.MediaType) map[string]any {
	values := map[string]any{}
	for name, example := range content.Examples {
		values[name] = example.Value.Value
	}
	if content.Example != nil {
		values[""] = content.Example
	}
	return values
}

// exampleNow is the time by the server's clock in the examples: 2026-11-20T22:00:30Z.
const exampleNow = testNow + 10*3_600_000 + 30_000

// TestExamples sends each example to a server that saw alice 30 seconds ago, where bob is yellow and carol left. It
// compares the response with its example.
func TestExamples(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	doc, responded := document(t), 0
	for name, c := range exampleCalls(t, doc) {
		w := newTestServer(t, openFileStore(t, filestore.Options{Now: clockFrom(exampleNow)}))
		w.store.set(exampleNow)
		w.post("/chat/pings", `{"pings":[{"user":"alice","at":"2026-11-20T22:00:00.123Z",`+
			`"device":{"id":"tab-9f2c1b","kind":"web","meta":{"page":"inbox"}}},{"user":"bob","at":"2026-11-20T21:58:00Z"},{"user":"carol","at":"2026-11-20T21:58:30Z"}]}`)
		w.post("/chat/users/carol/leave", `{"at":"2026-11-20T21:59:00Z"}`)
		w.send("PUT", "/chat/users/alice/contacts", `{"users":["bob","carol"]}`)
		w.prepareCall(c)
		r := c.send(w)
		require.Less(t, r.status, 300, "%s: %s", name, r.body)
		if r.body == "" || c.operation == "getVersion" { // which differs
			continue
		}
		_, path, _ := strings.Cut(name, " ")
		media, example, _ := strings.Cut(path, " ")
		template, _ := w.match(c.path)
		contents := doc.Paths.Value(template).GetOperation(c.method).Responses.Status(r.status).Value.Content
		if image := contents[mediaSVG]; image != nil {
			require.Equal(t, image.Example, r.body, name)
			responded++
			continue
		}
		want, there := examplesOf(contents[mediaJSON])[example]
		if !there && c.operation == "leaveUser" {
			continue // the same requests as for a ping, one response
		}
		require.True(t, there, "%s %s has no example of its response", name, media)
		want = alike(t, r, want)
		encoded, err := json.Marshal(want)
		require.NoError(t, err)
		require.JSONEq(t, string(encoded), r.body, name)
		responded++
	}
	require.Greater(t, responded, 15)
}

// prepareCall begins the call that is in the path of an example, if there is one.
func (w *testServer) prepareCall(c call) {
	w.t.Helper()
	_, rest, found := strings.Cut(c.path, "/calls/")
	if !found {
		return
	}
	id, _, _ := strings.Cut(rest, "/")
	w.ring(id, "bob", "alice")
	if c.operation == "getCall" || c.operation == "endCall" || c.operation == "keepCall" {
		w.act(id, "alice", lastseen.Accept)
	}
}

// alike returns the example of a response with what differs from response to response: in changes, the cursor and the
// time up to which they are complete, which is not that of the API's clock; in calls, the ID, the cursor and times.
func alike(t *testing.T, r testResponse, example any) any {
	t.Helper()
	want, _ := example.(map[string]any)
	var different []string
	if _, changes := want["reset"]; changes {
		different = []string{"cursor", "as_of"}
	}
	if _, calls := want["calls"]; calls {
		different = []string{"cursor"}
	}
	if _, call := want["from_device"]; call {
		different = []string{"id", "created_at", "accepted_at", "ended_at", "expires_at"}
	}
	want = maps.Clone(want)
	got := r.json(t)
	for _, name := range different {
		require.Equal(t, want[name] == nil, got[name] == nil, name)
		want[name] = got[name]
	}
	if want == nil {
		return example
	}
	return want
}

// spoilers returns changes of a valid request. Most of them make most requests invalid.
func spoilers() []func(*call) {
	query := func(pairs ...string) func(*call) {
		return func(c *call) {
			c.query = maps.Clone(c.query)
			for i := 0; i < len(pairs); i += 2 {
				c.query.Set(pairs[i], pairs[i+1])
			}
		}
	}
	header := func(h string) func(*call) { return func(c *call) { c.headers = append([]string{h}, c.headers...) } }
	path := func(old, changed string) func(*call) {
		return func(c *call) { c.path = strings.Replace(c.path, old, changed, 1) }
	}
	body := func(old, changed string) func(*call) {
		return func(c *call) { c.body = strings.Replace(c.body, old, changed, 1) }
	}
	method := func(m string) func(*call) { return func(c *call) { c.method = m } }
	return []func(*call){
		func(*call) {}, header("Prefer: return=minimal"), header("If-None-Match: *"), method("HEAD"),
		method("OPTIONS"), method("TRACE"), path("chat", ""), path("alice", ""), path("/", "//"),
		func(c *call) { c.path += "/" },
		path("chat", ".hidden"), path("alice", "%00"), query("user", ""), body(`"alice"`, `""`),
		query("as_of", "soon"), query("wait", "soon"), body(`{"users"`, `{"wait":"soon","users"`),
		body(`{"users"`, `{"cursor":"AAAA","users"`), query("green", "0"), query("green", "2s", "yellow", "1s"),
		query("to", "20", "as_of", "10"),
		query("cursor", "AAAA"), query("stauts", "green"), query("confirm", "other"),
		func(c *call) { c.rawQuery = "limit=%zz" },
		body("{}", `{"at":0}`), body(`{"user":"alice"}`, `{"user":"alice","at":0}`),
		body("{", ""), body("{", `{"x":1,`), body("{}", `{"x":1}`), body("{", "{"+strings.Repeat(" ", 5000)),
		body("{", "{"+strings.Repeat(" ", 1<<20)),
		body(`"busy"`, `"asleep"`), body(`"in a meeting"`, `"\u0000"`), body(`"1h"`, `"soon"`),
		body(`"for":"1h"`, `"until":"soon"`), body(`"alice"`, strings.Repeat(`"alice",`, 1000)+`"alice"`),
		body(`[{`, `[`+strings.Repeat(`{"user":"alice"},`, 10_000)+`{`),
		body(`"bob"`, strings.Repeat(`"bob",`, store.MaxContacts)+`"bob"`), body(`"bob"`, `"\u0000"`),
		func(c *call) { c.query = url.Values{"user": slices.Repeat([]string{"alice"}, 101)} },
		body("{", `{"device":{"id":""},`), body(`"tab-9f2c1b"`, `""`),
		body("5s", "61s"), body("{", `{"device":"\u0000",`), header("Content-Type: application/xml"),
		func(c *call) { c.headers = append(c.headers, manyHeaders(maxHeaderLines+1)...) },
	}
}

// TestEveryDocumentedResponse provokes each documented status and each code of each operation on both stores. Other
// tests check with every exchange that there are no others.
func TestEveryDocumentedResponse(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	eachStore(t, func(t *testing.T, w *testServer) {
		wanted, calls := documentedResponses(w.doc), exampleCalls(t, w.doc)
		w.store.set(exampleNow)
		for _, c := range calls {
			for _, spoil := range spoilers() {
				spoiled := c
				spoil(&spoiled)
				spoiled.send(w)
			}
		}
		responded := w.responses()
		for fault, causes := range storeErrors() {
			failed := newTestServer(t, failing(w.store.Store, causes[0]))
			for _, c := range calls {
				if wanted[fmt.Sprintf("%s %d %s", c.operation, fault.Type().Status, fault)] {
					c.send(failed)
				}
			}
			maps.Copy(responded, failed.responses())
		}
		unfollowed := newTestServer(t, w.store.Store, func(c *Config) { c.Settings.Changes = feed.Off })
		for _, c := range calls {
			c.send(unfollowed)
		}
		maps.Copy(responded, unfollowed.responses())
		deviceless := newTestServer(t, withoutDevices(w.store.Store))
		deviceless.store.set(exampleNow)
		for _, c := range calls {
			c.send(deviceless)
		}
		maps.Copy(responded, deviceless.responses())
		for _, err := range []error{store.ErrNoAvailability, store.ErrEvicts} {
			silent := newTestServer(t, failing(w.store.Store, err))
			for _, c := range calls {
				if strings.HasPrefix(c.operation, "setAvail") ||
					strings.HasPrefix(c.operation, "deleteAvail") && errors.Is(err, store.ErrNoAvailability) {
					c.send(silent)
				}
			}
			maps.Copy(responded, silent.responses())
		}
		for _, err := range []error{store.ErrNoContacts, store.ErrTooManyContacts, store.ErrContactsChanged} {
			alone := newTestServer(t, failing(w.store.Store, err))
			for _, c := range calls {
				if strings.HasSuffix(c.operation, "Contacts") &&
					(c.operation == "changeContacts" || errors.Is(err, store.ErrNoContacts) ||
						c.operation == "setContacts" && errors.Is(err, store.ErrContactsChanged)) {
					c.send(alone)
				}
			}
			maps.Copy(responded, alone.responses())
		}
		alone := newTestServer(t, failing(w.store.Store, store.ErrNoCalls))
		for _, c := range calls {
			if strings.Contains(c.path, "/calls") {
				c.send(alone)
			}
		}
		maps.Copy(responded, alone.responses())
		maps.Copy(responded, callResponses(t, w.store.Store))
		refusing := newTestServer(t, w.store.Store, func(c *Config) { c.RefuseUnknown = true })
		for _, c := range calls {
			c.send(refusing)
		}
		refusing.config.Shared.Drain()
		for _, c := range calls {
			c.send(refusing)
		}
		maps.Copy(responded, refusing.responses())
		maps.Copy(responded, refusals(t, w.store.Store, slices.Collect(maps.Values(calls))))
		maps.Copy(responded, rateLimited(t, w, calls))
		maps.Copy(responded, upgrades(t, w))
		maps.Copy(responded, reloaded(t, w.store.Store))
		require.Equal(t, slices.Sorted(maps.Keys(wanted)), slices.Sorted(maps.Keys(responded)))
	})
}
