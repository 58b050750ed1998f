package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// TestBulkDevices checks that items with and without devices are recorded together, and none of them if one is invalid.
func TestBulkDevices(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		pings := `{"user":"alice","device":{"id":"a"}},{"user":"bob"},` +
			`{"user":"alice","device":{"id":"b"},"activity":"idle"}`
		require.EqualValues(t, 3, w.post("/chat/pings", `{"pings":[`+pings+`]}`)["recorded"])
		require.Equal(t, []string{"a", "b"}, w.devices("alice"))
		require.Empty(t, w.devices("bob"))
		refusal := w.fails(problem.InvalidDevice, "POST", "/chat/pings",
			`{"pings":[{"user":"zoe"},{"user":"zoe","device":{"id":"z"}},{"user":"zoe","device":{}}]}`)
		require.EqualValues(t, 2, refusal["errors"].([]any)[0].(map[string]any)["index"])
		require.Nil(t, w.get("/chat/users/zoe")["last_seen"], "nothing is recorded")

		w.store.pass(1)
		lines := `{"user":"alice","device":{"id":"a"}}` + "\n" + `{"user":"bob"}` + "\n"
		require.EqualValues(t, 2, w.post("/chat/leaves", lines, ndjson)["recorded"])
		require.Equal(t, "green", w.get("/chat/users/alice")["status"])
		require.Equal(t, "grey", w.get("/chat/users/bob")["status"])
		bad := w.fails(problem.UnknownField, "POST", "/chat/pings",
			`{"user":"carol","device":{"id":"c"}}`+"\n"+`{"user":"zoe","after":"5s"}`, ndjson)
		require.EqualValues(t, 2, bad["line"])
		require.EqualValues(t, 1, bad["recorded"])
		require.Equal(t, []string{"c"}, w.devices("carol"))
	})
}

// devices returns the IDs of a user's devices.
func (w *testServer) devices(user string) []string {
	w.t.Helper()
	ids := []string{}
	for _, d := range w.get("/chat/users/" + user + "/devices")["devices"].([]any) {
		ids = append(ids, d.(map[string]any)["id"].(string))
	}
	return ids
}

// TestInvalidDevices checks what is refused, for one event and for many.
func TestInvalidDevices(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	for _, c := range []struct {
		paths, fields string
		want          problem.Code
		detail        string
	}{
		{"pings leaves", `"device":{}`, problem.InvalidDevice, "The device's id is missing or empty: use 1 to 64 bytes of UTF-8."},
		{"pings leaves", `"device":{"id":null}`, problem.InvalidDevice, "is missing or empty"},
		{"pings", `"device":{"id":"` + strings.Repeat("x", 65) + `"}`, problem.InvalidDevice, "has 65 bytes"},
		{"pings", `"device":{"id":"\u0007"}`, problem.InvalidDevice, "has the character U+0007"},
		{"pings", `"device":{"id":"x","kind":"Web"}`, problem.InvalidDevice, "use web, mobile, desktop, service or other"},
		{"pings", `"device":{"id":"x","meta":{"a":"` + strings.Repeat("x", 1017) + `"}}`, problem.InvalidDevice, "more than 1024"},
		{"pings", `"device":{"id":"x","meta":[]}`, problem.InvalidJSON, "meta is a JSON array; an object is expected."},
		{"pings", `"device":{"id":"x","meta":5}`, problem.InvalidJSON, "meta is a JSON number; an object is expected."},
		{"pings", `"device":{"id":"x","meta":{"a":1,"a":2}}`, problem.InvalidJSON, "Duplicate name"},
		{"pings", `"device":{"id":"x","id":"y"}`, problem.InvalidJSON, "Duplicate name"},
		{"pings", `"device":{"id":"x","meta":{"a":}}`, problem.InvalidJSON, "Invalid JSON"},
		{"pings leaves", `"device":{"id":"x","os":"linux"}`, problem.UnknownField, "Allowed: id, kind, meta."},
		{"pings", `"device":"x"`, problem.InvalidJSON, "device is a JSON string; an object is expected."},
		{"pings", `"device":{"id":5}`, problem.InvalidJSON, "device/id is a JSON number; a string is expected."},
		{"pings", `"device":{"id":"x"},"activity":"busy"`, problem.InvalidDevice, `Invalid activity "busy": use active or idle.`},
		{"pings", `"activity":"idle"`, problem.InvalidDevice, "activity is that of a device: send the device, too."},
		{"leaves", `"activity":"idle"`, problem.UnknownField, "activity"},
		{"pings", `"after":"5s"`, problem.UnknownField, "after"},
		{"leaves", `"after":"61s"`, problem.InvalidDuration, `Invalid after "61s": use at most 60s.`},
		{"leaves", `"after":"-1s"`, problem.InvalidDuration, "out of range"},
		{"leaves", `"after":"soon"`, problem.InvalidDuration, `after: "soon" is not a valid duration`},
		{"leaves", `"after":5`, problem.InvalidJSON, "after is a JSON number; a string is expected."},
	} {
		for path := range strings.FieldsSeq(c.paths) {
			single := "/chat/users/alice/" + strings.TrimSuffix(path, "s")
			one := w.fails(c.want, "POST", single, "{"+c.fields+"}")
			require.Contains(t, one["detail"], c.detail, c.fields)
			many := w.fails(c.want, "POST", "/chat/"+path, `{"`+path+`":[{"user":"alice",`+c.fields+`}]}`)
			require.Contains(t, many["detail"], c.detail, c.fields)
			line := w.fails(c.want, "POST", "/chat/"+path, `{"user":"alice",`+c.fields+`}`, ndjson)
			require.Contains(t, line["detail"], c.detail, c.fields)
		}
	}
	require.Zero(t, w.total("chat"))
}

// TestNullDevices checks that null is the same as omitting a field.
func TestNullDevices(t *testing.T) {
	for text, want := range map[string]batch{
		`{"user":"alice","device":null,"activity":null,"after":null}`: {plain: []store.Sighting{{User: "alice", At: testNow}}},
		`{"user":"alice","device":{"id":"x","kind":null,"meta":null}}`: {
			devices: []store.DeviceSighting{{User: "alice", ID: "x", At: testNow}},
		},
	} {
		var i item
		require.NoError(t, unmarshal([]byte(text), &i))
		var b batch
		require.Nil(t, b.add(telemetry.Ping, "chat", i.User, i.assertion, testNow))
		require.Equal(t, want, b)
	}
}

// TestValidDevices checks what is accepted at the limits.
func TestValidDevices(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	meta := `{"a":"` + strings.Repeat("}", 1014) + `\\"}`
	require.Len(t, meta, lastseen.MaxMetaLen)
	for _, fields := range []string{
		`"device":{"id":"` + strings.Repeat("ü", 32) + `"}`, `"device":{"id":"x"},"activity":"active"`,
		`"device":{"id":"x", "meta" : ` + meta + `} `, `"device":{"id":"x","meta":{}}`,
		`"device":{"meta":{"a":[{"b":{}}]},"id":"x"}`,
	} {
		w.post("/chat/users/alice/ping", "{"+fields+"}")
		w.post("/chat/pings", `{"pings":[{"user":"alice",`+fields+`},{"user":"`+strings.Repeat("b", 250)+`"}]}`)
		w.post("/chat/pings", `{"user":"alice",`+fields+`}`, ndjson)
	}
	w.post("/chat/users/bob/ping", `{"device":{"id":"x","meta":`+meta+`}}`)
	entry := firstOf(w.get("/chat/users/bob/devices"), "devices")
	require.Equal(t, strings.Repeat("}", 1014)+`\`, entry["meta"].(map[string]any)["a"])
}

// FuzzMetadata checks that the end of an object is found where it is.
func FuzzMetadata(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"}\"{"}`, `{"a":{"b":[{}]}}`, `{"\\":1}`, `{"a`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value := jsontext.Value(data)
		if !value.IsValid() || data[0] != '{' {
			return
		}
		end := strings.LastIndexByte(string(data), '}')
		require.False(t, endsWithin(data[:end]))
		require.True(t, endsWithin(data[:end+1]))
	})
}

// TestLeaveLater checks that a leave waits, on its device alone, and that a ping in the meantime makes it void.
func TestLeaveLater(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		w.keepConnections()
		one := `{"device":{"id":"one"}`
		for _, user := range []string{"alice", "bob", "carol"} {
			w.post("/chat/users/"+user+"/ping", one+"}")
		}
		w.store.pass(1)
		r := w.send("POST", "/chat/users/alice/leave", one+`,"after":"1ms"}`, "Prefer: return=minimal").is(t, http.StatusAccepted)
		require.Empty(t, r.body)
		w.send("POST", "/chat/users/dave/leave", `{"after":"60s"}`).is(t, http.StatusAccepted)
		require.EqualValues(t, 3, w.post("/chat/leaves", `{"leaves":[{"user":"bob","after":"0.001"},`+
			`{"user":"carol","device":{"id":"one"},"after":"60s"},{"user":"erin","after":"0s"}]}`)["recorded"])
		for _, user := range []string{"alice", "bob"} {
			await(t, func() bool { return w.get("/chat/users/" + user)["left"] == true })
		}
		require.Equal(t, false, w.get("/chat/users/carol")["left"], "it waits")
		require.Nil(t, w.get("/chat/users/dave")["last_seen"], "it waits")
		require.Equal(t, true, w.get("/chat/users/erin")["left"])
		w.store.pass(1)
		w.post("/chat/users/carol/ping", one+"}")
		w.config.Connections.Stop(context.Background()) // writes what waits
		require.Equal(t, "green", w.get("/chat/users/carol")["status"], "the ping came later")
		require.Equal(t, true, w.get("/chat/users/dave")["left"])
		require.Equal(t, "2026-11-20T12:00:00.001Z", w.get("/chat/users/dave")["last_seen"], "when it was sent")
	})
}

// keepConnections gives the server a registry that works until the test ends.
func (w *testServer) keepConnections() {
	w.t.Helper()
	settings := func(string) connections.Settings {
		s := w.config.Settings
		return connections.Settings{Thresholds: s.Thresholds, PingInterval: s.PingInterval}
	}
	registry := connections.New(connections.Options{Store: w.config.Store, Settings: settings, Logger: w.config.Logger})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		registry.Run(ctx)
		close(done)
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	w.reload(func(c *Config) { c.Connections = registry })
}

// TestDevicesUnavailable checks that nothing of a request is recorded in a namespace that cannot have devices.
func TestDevicesUnavailable(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, withoutDevices(fileStore(t)))
	const device, ping = `"device":{"id":"a"}`, "/chat/users/alice/ping"
	for _, r := range [][2]string{
		{ping, "{" + device + "}"},
		{"/chat/users/alice/leave", "{" + device + "}"},
		{"/chat/users/alice/leave", "{" + device + `,"after":"5s"}`},
		{"/chat/pings", `{"pings":[{"user":"bob"},{"user":"alice",` + device + `}]}`},
		{"/chat/leaves", `{"leaves":[{"user":"bob"},{"user":"alice",` + device + `,"after":"1m"}]}`},
	} {
		w.fails(problem.DevicesUnavailable, "POST", r[0], r[1])
	}
	refusal := w.fails(problem.DevicesUnavailable, "POST", "/chat/pings", `{"user":"bob"}`+"\n"+`{"user":"alice",`+device+`}`+"\n", ndjson)
	require.EqualValues(t, 0, refusal["recorded"])
	require.Zero(t, w.total("chat"))
	w.post(ping, "")
}

// TestDeviceMetrics checks that the leave of a device counts as a departure only if the user left with it.
func TestDeviceMetrics(t *testing.T) {
	t.Parallel()
	w, registry := newMeteredServer(t, fileStore(t))
	w.keepConnections()
	device := func(id string) string { return fmt.Sprintf(`{"device":{"id":%q}}`, id) }
	w.post("/chat/users/alice/ping", device("a"))
	w.post("/chat/users/alice/ping", device("b"))
	w.store.pass(1)
	w.post("/chat/users/alice/leave", device("a"))
	leaves := func() map[string]float64 { return samples(t, registry, "lastseen_leaves_total") }
	departures := func() map[string]float64 { return samples(t, registry, "lastseen_departures_total") }
	require.Equal(t, map[string]float64{"recorded": 1}, leaves())
	require.Empty(t, departures())
	w.store.pass(1)
	w.post("/chat/users/alice/leave", device("b"))
	require.Equal(t, map[string]float64{"left,chat": 1}, departures())
	w.store.pass(-2)
	w.post("/chat/users/alice/leave", device("b"))
	require.Equal(t, map[string]float64{"recorded": 2, "superseded": 1}, leaves())
	w.send("POST", "/chat/users/bob/leave", `{"after":"1m"}`).is(t, http.StatusAccepted)
	require.Equal(t, map[string]float64{"recorded": 3, "superseded": 1}, leaves())
	require.Equal(t, map[string]float64{"left,chat": 1}, departures(), "a leave that waits can become void")
	w.Shared().Telemetry.CountLeft("chat", 2)
	w.Shared().Telemetry.CountLeft("unknown", 2)
	require.Equal(t, map[string]float64{"left,chat": 3}, departures())
	w.fails(problem.InvalidDevice, "POST", "/chat/users/alice/ping", `{"device":{}}`)
	require.Equal(t, map[string]float64{"recorded": 2, "refused": 1}, samples(t, registry, "lastseen_pings_total"))
}

// withoutDevices returns a store whose namespaces cannot have devices. Real ones are sets that other programs write.
func withoutDevices(s store.Store) store.Store {
	return failingCalls(s, store.ErrNoDevices, "RecordDevices", "ReadDevices")
}
