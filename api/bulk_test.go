package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/connections"
)

func TestBulk(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		response := w.post("/chat/pings",
			`{"pings":[{"user":"alice"},{"user":"bob","at":100123},{"user":"alice","at":1}]}`)
		require.EqualValues(t, 3, response["recorded"], "superseded ones count")
		require.Equal(t, 2, w.total("chat"))
		require.EqualValues(t, 3, w.post("/chat/leaves",
			`{"leaves":[{"user":"alice"},{"user":"zoe"},{"user":"bob"}]}`)["recorded"])
		require.Equal(t, 3, w.total("chat"), "a leave of a user never seen is recorded")
		require.EqualValues(t, 0, w.post("/chat/leaves", `{"leaves":[]}`)["recorded"])

		var items []string
		for i := range 50 {
			item := fmt.Sprintf(`{"user":"new-%d"}`, i)
			if i%2 == 1 {
				item = `{"user":"new","at":-1}`
			}
			items = append(items, item)
		}
		problem := w.fails(codeInvalidTime, http.MethodPost, "/chat/pings", `{"pings":[`+strings.Join(items, ",")+`]}`)
		bad := problem["errors"].([]any)
		require.Len(t, bad, 20, "the first 20")
		for i, e := range bad {
			require.EqualValues(t, 2*i+1, e.(map[string]any)["index"])
			require.NotEmpty(t, e.(map[string]any)["detail"])
		}
		require.Equal(t, 3, w.total("chat"), "one bad item and nothing is recorded")

		most := `{"pings":[` + strings.Repeat(`{"user":"u"},`, 9_999) + `{"user":"u"}]}`
		require.EqualValues(t, 10_000, w.post("/chat/pings", most)["recorded"])
	})
}

// TestItemErrors checks that errors found during decoding name the item, as later errors do.
func TestItemErrors(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	problem := w.fails(codeInvalidTime, http.MethodPost, "/chat/pings", `{"pings":[{"user":"a"},{"user":"b","at":{}}]}`)
	require.Len(t, problem["errors"], 1)
	require.EqualValues(t, 1, problem["errors"].([]any)[0].(map[string]any)["index"])
	problem = w.fails(codeInvalidJSON, http.MethodPost, "/chat/pings", `{"pings":[{"user":"a"},{"user":[]}]}`)
	require.Equal(t, "/pings/1/user is a JSON array; a string is expected.", problem["detail"])
	problem = w.fails(codeInvalidJSON, http.MethodPost, "/chat/lookup", `{"users":["a",{}]}`)
	require.Equal(t, "/users/1 is a JSON object; a string is expected.", problem["detail"])
	problem = w.fails(codeInvalidJSON, http.MethodPost, "/chat/lookup", `{"users":{}}`)
	require.Equal(t, "/users is a JSON object; an array is expected.", problem["detail"])
	problem = w.fails(codeInvalidJSON, http.MethodPost, "/chat/leaves", `{"leaves":[[]]}`)
	require.Equal(t, "/leaves/0 is a JSON array; an object is expected.", problem["detail"])
	require.Zero(t, w.total("chat"))
}

// FuzzItem checks that an accepted item is a valid ping or leave.
func FuzzItem(f *testing.F) {
	for _, seed := range []string{
		`{"user":"alice","at":1}`, `{"user":"\u00e9","at":"2026-11-20T12:00:00Z"}`, `{}`,
		`null`, `{"at":1e400}`, `{"user":"a","device":{"id":"d","kind":"web","meta":{"a":[{}]}},"activity":"idle"}`,
		`{"user":"a","device":{"id":"d"},"after":"5s"}`, `{"user":"a","device":null,"after":"1"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var i item
		if unmarshal(data, &i) != nil {
			return
		}
		for _, e := range []event{eventPing, eventLeave} {
			var b batch
			if b.add(e, "chat", i.User, i.assertion, testNow) != nil {
				require.Zero(t, b.size())
				continue
			}
			require.Equal(t, 1, b.size())
			for _, s := range b.plain {
				requireValidSighting(t, s.User, s.At)
			}
			for _, d := range b.later {
				require.Equal(t, eventLeave, e)
				require.Positive(t, d.After)
				require.LessOrEqual(t, d.After, connections.MaxGrace)
				requireValidSighting(t, d.User, d.At)
				if d.ID != "" {
					b.devices = append(b.devices, d.DeviceSighting)
				}
			}
			for _, d := range b.devices {
				requireValidSighting(t, d.User, d.At)
				require.NoError(t, lastseen.CheckDevice(d.ID))
				require.Contains(t, append(lastseen.DeviceKinds(), ""), d.Kind)
				require.Equal(t, e == eventLeave, d.Gone)
				require.LessOrEqual(t, d.Idle, d.At)
				require.LessOrEqual(t, len(d.Meta), lastseen.MaxMetaLen)
				require.True(t, d.Meta == "" || jsontext.Value(d.Meta).IsValid() && d.Meta[0] == '{')
			}
		}
	})
}

func requireValidSighting(t *testing.T, user string, at lastseen.Instant) {
	t.Helper()
	require.NoError(t, lastseen.CheckUser(user))
	require.GreaterOrEqual(t, at, lastseen.MinInstant)
	require.LessOrEqual(t, at, testNow+maxAhead)
}
