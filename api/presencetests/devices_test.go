package presencetests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store/connections"
)

// TestBulkDevices checks that items with and without devices are recorded together, and none of them if one is invalid.
func TestBulkDevices(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		pings := `{"user":"alice","device":{"id":"a"}},{"user":"bob"},` +
			`{"user":"alice","device":{"id":"b"},"activity":"idle"}`
		require.EqualValues(t, 3, w.Post("/chat/pings", `{"pings":[`+pings+`]}`)["recorded"])
		require.Equal(t, []string{"a", "b"}, devices(w, "alice"))
		require.Empty(t, devices(w, "bob"))
		refusal := w.Fails(problem.InvalidDevice, "POST", "/chat/pings",
			`{"pings":[{"user":"zoe"},{"user":"zoe","device":{"id":"z"}},{"user":"zoe","device":{}}]}`)
		require.EqualValues(t, 2, refusal["errors"].([]any)[0].(map[string]any)["index"])
		require.Nil(t, w.Get("/chat/users/zoe")["last_seen"], "nothing is recorded")

		w.Store.Pass(1)
		lines := `{"user":"alice","device":{"id":"a"}}` + "\n" + `{"user":"bob"}` + "\n"
		require.EqualValues(t, 2, w.Post("/chat/leaves", lines, kit.NDJSON)["recorded"])
		require.Equal(t, "green", w.Get("/chat/users/alice")["status"])
		require.Equal(t, "grey", w.Get("/chat/users/bob")["status"])
		bad := w.Fails(problem.UnknownField, "POST", "/chat/pings",
			`{"user":"carol","device":{"id":"c"}}`+"\n"+`{"user":"zoe","after":"5s"}`, kit.NDJSON)
		require.EqualValues(t, 2, bad["line"])
		require.EqualValues(t, 1, bad["recorded"])
		require.Equal(t, []string{"c"}, devices(w, "carol"))
	})
}

func devices(w *apitest.Server, user string) []string {
	w.T.Helper()
	ids := []string{}
	for _, d := range w.Get("/chat/users/" + user + "/devices")["devices"].([]any) {
		ids = append(ids, d.(map[string]any)["id"].(string))
	}
	return ids
}

// TestInvalidDevices checks what is refused, for one event and for many.
func TestInvalidDevices(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
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
			one := w.Fails(c.want, "POST", single, "{"+c.fields+"}")
			require.Contains(t, one["detail"], c.detail, c.fields)
			many := w.Fails(c.want, "POST", "/chat/"+path, `{"`+path+`":[{"user":"alice",`+c.fields+`}]}`)
			require.Contains(t, many["detail"], c.detail, c.fields)
			line := w.Fails(c.want, "POST", "/chat/"+path, `{"user":"alice",`+c.fields+`}`, kit.NDJSON)
			require.Contains(t, line["detail"], c.detail, c.fields)
		}
	}
	require.Zero(t, w.Total("chat"))
}

// TestValidDevices checks what is accepted at the limits.
func TestValidDevices(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	meta := `{"a":"` + strings.Repeat("}", 1014) + `\\"}`
	require.Len(t, meta, lastseen.MaxMetaLen)
	for _, fields := range []string{
		`"device":{"id":"` + strings.Repeat("ü", 32) + `"}`, `"device":{"id":"x"},"activity":"active"`,
		`"device":{"id":"x", "meta" : ` + meta + `} `, `"device":{"id":"x","meta":{}}`,
		`"device":{"meta":{"a":[{"b":{}}]},"id":"x"}`,
	} {
		w.Post("/chat/users/alice/ping", "{"+fields+"}")
		w.Post("/chat/pings", `{"pings":[{"user":"alice",`+fields+`},{"user":"`+strings.Repeat("b", 250)+`"}]}`)
		w.Post("/chat/pings", `{"user":"alice",`+fields+`}`, kit.NDJSON)
	}
	w.Post("/chat/users/bob/ping", `{"device":{"id":"x","meta":`+meta+`}}`)
	entry := kit.FirstOf(w.Get("/chat/users/bob/devices"), "devices")
	require.Equal(t, strings.Repeat("}", 1014)+`\`, entry["meta"].(map[string]any)["a"])
}

// TestLeaveLater checks that a leave waits, on its device alone, and that a ping in the meantime makes it void.
func TestLeaveLater(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		keepConnections(w)
		one := `{"device":{"id":"one"}`
		for _, user := range []string{"alice", "bob", "carol"} {
			w.Post("/chat/users/"+user+"/ping", one+"}")
		}
		w.Store.Pass(1)
		r := w.Send("POST", "/chat/users/alice/leave", one+`,"after":"1ms"}`, "Prefer: return=minimal").Is(t, http.StatusAccepted)
		require.Empty(t, r.Body)
		w.Send("POST", "/chat/users/dave/leave", `{"after":"60s"}`).Is(t, http.StatusAccepted)
		require.EqualValues(t, 3, w.Post("/chat/leaves", `{"leaves":[{"user":"bob","after":"0.001"},`+
			`{"user":"carol","device":{"id":"one"},"after":"60s"},{"user":"erin","after":"0s"}]}`)["recorded"])
		for _, user := range []string{"alice", "bob"} {
			kit.Await(t, func() bool { return w.Get("/chat/users/" + user)["left"] == true })
		}
		require.Equal(t, false, w.Get("/chat/users/carol")["left"], "it waits")
		require.Nil(t, w.Get("/chat/users/dave")["last_seen"], "it waits")
		require.Equal(t, true, w.Get("/chat/users/erin")["left"])
		w.Store.Pass(1)
		w.Post("/chat/users/carol/ping", one+"}")
		w.Config.Connections.Stop(context.Background()) // writes what waits
		require.Equal(t, "green", w.Get("/chat/users/carol")["status"], "the ping came later")
		require.Equal(t, true, w.Get("/chat/users/dave")["left"])
		require.Equal(t, "2026-11-20T12:00:00.001Z", w.Get("/chat/users/dave")["last_seen"], "when it was sent")
	})
}

// keepConnections gives the server a registry that works until the test ends.
func keepConnections(w *apitest.Server) {
	w.T.Helper()
	settings := func(string) connections.Settings {
		s := w.Config.Settings
		return connections.Settings{Thresholds: s.Thresholds, PingInterval: s.PingInterval}
	}
	registry := connections.New(connections.Options{Store: w.Config.Store, Settings: settings, Logger: w.Config.Logger})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		registry.Run(ctx)
		close(done)
	}()
	w.T.Cleanup(func() {
		cancel()
		<-done
	})
	w.Reload(func(c *api.Config) { c.Connections = registry })
}

// TestDevicesUnavailable checks that nothing of a request is recorded in a namespace that cannot have devices.
func TestDevicesUnavailable(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.WithoutDevices(kit.FileStore(t)))
	const device, ping = `"device":{"id":"a"}`, "/chat/users/alice/ping"
	for _, r := range [][2]string{
		{ping, "{" + device + "}"},
		{"/chat/users/alice/leave", "{" + device + "}"},
		{"/chat/users/alice/leave", "{" + device + `,"after":"5s"}`},
		{"/chat/pings", `{"pings":[{"user":"bob"},{"user":"alice",` + device + `}]}`},
		{"/chat/leaves", `{"leaves":[{"user":"bob"},{"user":"alice",` + device + `,"after":"1m"}]}`},
	} {
		w.Fails(problem.DevicesUnavailable, "POST", r[0], r[1])
	}
	refusal := w.Fails(problem.DevicesUnavailable, "POST", "/chat/pings", `{"user":"bob"}`+"\n"+`{"user":"alice",`+device+`}`+"\n", kit.NDJSON)
	require.EqualValues(t, 0, refusal["recorded"])
	require.Zero(t, w.Total("chat"))
	w.Post(ping, "")
}

// TestDeviceMetrics checks that the leave of a device counts as a departure only if the user left with it.
func TestDeviceMetrics(t *testing.T) {
	t.Parallel()
	w, registry := apitest.NewMeteredServer(t, kit.FileStore(t))
	keepConnections(w)
	device := func(id string) string { return fmt.Sprintf(`{"device":{"id":%q}}`, id) }
	w.Post("/chat/users/alice/ping", device("a"))
	w.Post("/chat/users/alice/ping", device("b"))
	w.Store.Pass(1)
	w.Post("/chat/users/alice/leave", device("a"))
	leaves := func() map[string]float64 { return kit.Samples(t, registry, "lastseen_leaves_total") }
	departures := func() map[string]float64 { return kit.Samples(t, registry, "lastseen_departures_total") }
	require.Equal(t, map[string]float64{"recorded": 1}, leaves())
	require.Empty(t, departures())
	w.Store.Pass(1)
	w.Post("/chat/users/alice/leave", device("b"))
	require.Equal(t, map[string]float64{"left,chat": 1}, departures())
	w.Store.Pass(-2)
	w.Post("/chat/users/alice/leave", device("b"))
	require.Equal(t, map[string]float64{"recorded": 2, "superseded": 1}, leaves())
	w.Send("POST", "/chat/users/bob/leave", `{"after":"1m"}`).Is(t, http.StatusAccepted)
	require.Equal(t, map[string]float64{"recorded": 3, "superseded": 1}, leaves())
	require.Equal(t, map[string]float64{"left,chat": 1}, departures(), "a leave that waits can become void")
	w.Config.Shared.Telemetry.CountLeft("chat", 2)
	w.Config.Shared.Telemetry.CountLeft("unknown", 2)
	require.Equal(t, map[string]float64{"left,chat": 3}, departures())
	w.Fails(problem.InvalidDevice, "POST", "/chat/users/alice/ping", `{"device":{}}`)
	require.Equal(t, map[string]float64{"recorded": 2, "refused": 1}, kit.Samples(t, registry, "lastseen_pings_total"))
}
