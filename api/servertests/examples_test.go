package servertests

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

// call is a request from an example in the document.
type call struct {
	operation, method, path string
	query                   url.Values
	rawQuery, body          string // rawQuery replaces query
	headers                 []string
}

func (c call) send(w *apitest.Server) kit.Response {
	query := c.query.Encode()
	if c.rawQuery != "" {
		query = c.rawQuery
	}
	return w.SendTo(c.method, c.path+"?"+query, c.body, c.headers...)
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
				if strings.HasPrefix(name, "application/x-ndjson") {
					c.headers = []string{kit.NDJSON}
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
const exampleNow = kit.Now + 10*3_600_000 + 30_000

// TestExamples sends each example to a server that saw alice 30 seconds ago, where bob is yellow and carol left. It
// compares the response with its example.
func TestExamples(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	doc, responded := kit.Document(t), 0
	for name, c := range exampleCalls(t, doc) {
		w := apitest.NewServer(t, kit.OpenFileStore(t, filestore.Options{Now: kit.ClockFrom(exampleNow)}))
		w.Store.Set(exampleNow)
		w.Post("/chat/pings", `{"pings":[{"user":"alice","at":"2026-11-20T22:00:00.123Z",`+
			`"device":{"id":"tab-9f2c1b","kind":"web","meta":{"page":"inbox"}}},{"user":"bob","at":"2026-11-20T21:58:00Z"},{"user":"carol","at":"2026-11-20T21:58:30Z"}]}`)
		w.Post("/chat/users/carol/leave", `{"at":"2026-11-20T21:59:00Z"}`)
		w.Send("PUT", "/chat/users/alice/contacts", `{"users":["bob","carol"]}`)
		prepare(w, c)
		r := c.send(w)
		require.Less(t, r.Status, 300, "%s: %s", name, r.Body)
		if r.Body == "" || c.operation == "getVersion" { // which differs
			continue
		}
		_, path, _ := strings.Cut(name, " ")
		media, example, _ := strings.Cut(path, " ")
		template, _ := w.Match(c.path)
		contents := doc.Paths.Value(template).GetOperation(c.method).Responses.Status(r.Status).Value.Content
		if image := contents["image/svg+xml"]; image != nil {
			require.Equal(t, image.Example, r.Body, name)
			responded++
			continue
		}
		want, there := examplesOf(contents["application/json"])[example]
		if !there && c.operation == "recordLeave" {
			continue // the same requests as for a ping, one response
		}
		require.True(t, there, "%s %s has no example of its response", name, media)
		want = alike(t, r, want)
		encoded, err := json.Marshal(want)
		require.NoError(t, err)
		require.JSONEq(t, string(encoded), r.Body, name)
		responded++
	}
	require.Greater(t, responded, 15)
}

// prepare sets what an example gets: an availability, or the call in its path or in the list.
func prepare(w *apitest.Server, c call) {
	if c.operation == "listWebhooks" { // what the server that delivers noted
		n := store.Note{Version: "1", Text: fmt.Appendf(nil, `{"At":%d,"Delivered":%d,"Lag":270000000,"Failed":%d,`+
			`"Error":"the receiver answered 503"}`, exampleNow, exampleNow-270, exampleNow-2_902_690)}
		_, err := w.Store.SetNote(w.T.Context(), "webhook-app", "", "", n)
		require.NoError(w.T, err)
	}
	w.T.Helper()
	if c.operation == "getAvailability" {
		w.Send("PUT", "/chat/users/alice/availability", `{"availability":"busy","note":"in a meeting","for":"1h"}`)
	}
	if c.operation == "listCalls" {
		w.Ring("1", "bob", "alice")
	}
	_, rest, found := strings.Cut(c.path, "/calls/")
	if !found {
		return
	}
	id, _, _ := strings.Cut(rest, "/")
	w.Ring(id, "bob", "alice")
	if c.operation == "getCall" || c.operation == "endCall" || c.operation == "keepCallAlive" {
		w.Act(id, "alice", lastseen.Accept)
	}
}

// alike returns the example of a response with what differs from response to response: in changes, the cursor and the
// time up to which they are complete, which is not that of the API's clock; in calls, the ID, the cursor and times.
func alike(t *testing.T, r kit.Response, example any) any {
	t.Helper()
	want, ok := example.(map[string]any)
	if !ok {
		return example
	}
	got := r.JSON(t)
	calls, listsCalls := want["calls"].([]any)
	switch {
	case want["reset"] != nil:
		return copied(t, want, got, "cursor", "as_of")
	case listsCalls:
		want = copied(t, want, got, "cursor")
		want["calls"] = []any{alikeCall(t, calls[0], got["calls"].([]any)[0])}
		return want
	case want["state"] != nil:
		return alikeCall(t, want, got)
	default:
		return want
	}
}

// alikeCall is alike for a call.
func alikeCall(t *testing.T, want, got any) any {
	t.Helper()
	return copied(t, want.(map[string]any), got.(map[string]any),
		"id", "created_at", "accepted_at", "ended_at", "expires_at")
}

// copied returns an object with some fields of another, which are null in neither or in both.
func copied(t *testing.T, want, got map[string]any, names ...string) map[string]any {
	t.Helper()
	want = maps.Clone(want)
	for _, name := range names {
		require.Equal(t, want[name] == nil, got[name] == nil, name)
		want[name] = got[name]
	}
	return want
}
