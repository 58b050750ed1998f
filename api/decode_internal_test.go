package api

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// TestAvailabilityUntilTheEndOfTime checks that the end of a user's availability is a valid time, whatever the clock
// is.
func TestAvailabilityUntilTheEndOfTime(t *testing.T) {
	b := availabilityBody{Note: "x", For: new(request.Scalar("10000h"))}
	availability, err := b.state(lastseen.MaxInstant - 1)
	require.NoError(t, err)
	require.Equal(t, lastseen.AvailabilityState{Note: "x", Until: lastseen.MaxInstant}, availability)
}

// repeated returns about a MiB of JSON: a text repeated with commas between, and something before and after.
func repeated(before, text, after string) []byte {
	n := (int(itemsForm.Max) - len(before) - len(after)) / (len(text) + 1)
	return []byte(before + strings.Repeat(text+",", n-1) + text + after)
}

// named returns the inside of a JSON object with n different names.
func named(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%x":0,`, i)
	}
	return b.String() + `"":0`
}

// TestDecodingStops checks how many items of a list that is too long are decoded.
func TestDecodingStops(t *testing.T) {
	var users lookupBody
	err := request.Unmarshal([]byte(`{"users":[""`+strings.Repeat(`,""`, request.MaxItems-1)+`]}`), &users, strict)
	require.Equal(t, problem.TooManyItems, kit.RequireProblem(t, err).Code)
	require.LessOrEqual(t, len(*users.Users), request.MaxUsers+1, "with a slot for the item that is refused")

	var pings pingsBody
	err = request.Unmarshal(repeated(`{"pings":[`, `{}`, `]}`), &pings, strict)
	require.Equal(t, problem.TooManyItems, kit.RequireProblem(t, err).Code)
	require.Nil(t, pings.Pings, "nothing is decoded")
	require.Error(t, request.CheckForm([]byte(`{"pings":[{}`+strings.Repeat(",{}", request.MaxItems))), "and the rest is not looked at")
	for _, list := range []string{`{}`, `{"user":"[,,","device":{"meta":[1,2]}}`, `null`} {
		require.NoError(t, request.CheckForm([]byte(`{"at":[1,2],"pings":[`+list+strings.Repeat(","+list, request.MaxItems-1)+`]}`)), list)
	}
}

// TestRefusedBodiesUseLittleMemory measures the memory that refusing a body of a MiB allocates.
func TestRefusedBodiesUseLittleMemory(t *testing.T) {
	wide := named(100_000)
	for name, c := range map[string]struct {
		body []byte
		into any
		want problem.Code
	}{
		"users": {repeated(`{"users":[`, `""`, `]}`), &lookupBody{}, problem.TooManyItems},
		"a list that is too long, and then no JSON": {
			repeated(`{"users":[`, `""`, ``), &lookupBody{},
			problem.TooManyItems,
		},
		"names for users":          {[]byte(`{"users":{` + wide + `}}`), &lookupBody{}, problem.InvalidJSON},
		"names in a user":          {[]byte(`{"users":[{` + wide + `}]}`), &lookupBody{}, problem.InvalidJSON},
		"a list for a user":        {repeated(`{"users":[[`, `0`, `]]}`), &lookupBody{}, problem.InvalidJSON},
		"a list as the body":       {repeated(`[`, `{}`, `]`), &lookupBody{}, problem.InvalidJSON},
		"names in a list":          {[]byte(`[{` + wide + `}]`), &pingsBody{}, problem.InvalidJSON},
		"names in the user":        {[]byte(`{"pings":[{"user":{` + wide + `}}]}`), &pingsBody{}, problem.InvalidJSON},
		"names in the time":        {[]byte(`{"pings":[{"at":{` + wide + `}}]}`), &pingsBody{}, problem.InvalidTime},
		"names in a list of pings": {[]byte(`{"pings":[[{` + wide + `}]]}`), &pingsBody{}, problem.InvalidJSON},
		"unknown names":            {[]byte(`{"pings":[{` + wide + `}]}`), &pingsBody{}, problem.UnknownField},
		"unknown names of a ping":  {[]byte(`{` + wide + `}`), &pingBody{}, problem.UnknownField},
		"names in the one time":    {[]byte(`{"at":{` + wide + `}}`), &pingBody{}, problem.InvalidTime},
		"names in a token":         {[]byte(`{"token":{` + wide + `}}`), &leaveBody{}, problem.InvalidJSON},
		"lists in lists":           {[]byte(`{"pings":` + strings.Repeat("[", 1<<20)), &pingsBody{}, problem.InvalidJSON},
		"a list in a time":         {[]byte(`{"at":` + strings.Repeat("[", 1<<20)), &pingBody{}, problem.InvalidJSON},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := request.Unmarshal(c.body, c.into, strict)
			runtime.ReadMemStats(&after)
			require.Equal(t, c.want, kit.RequireProblem(t, err).Code, err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<10), "bytes")
		})
	}
}

// FuzzBody checks that a body is refused with a readable error, or is valid for the standard library, too.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"pings":[{"user":"alice"},{"user":"bob","at":100123.5}]}`, `{"pings":[]}`, `{"pings":null}`,
		`{"pings":[null]}`, "\ufeff{}", `{"pings":[{"user":"\ud800"}]}`, `{"pings":[{"user":"a","user":"b"}]}`,
		`{"PINGS":[]}`, `{"pings":[[[[`, `{"pings":[{"at":{"a":[1]}}]}`, `null`, `{} {}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, body := range []any{&pingsBody{}, &leavesBody{}, &lookupBody{}, &pingBody{}, &leaveBody{}} {
			if err := request.Unmarshal(data, body, strict); err != nil {
				kit.RequireProblem(t, err)
			}
		}
		var body pingsBody
		if request.Unmarshal(data, &body, strict) != nil || body.Pings == nil {
			return
		}
		require.True(t, utf8.Valid(data))
		for _, i := range *body.Pings {
			for _, e := range []telemetry.Event{telemetry.Ping, telemetry.Leave} {
				if err := new(batch).add(e, "chat", i.User, i.Event, kit.Now); err != nil {
					kit.RequireProblem(t, err)
				}
			}
		}
	})
}

// TestNullDevices checks that null is the same as omitting a field.
func TestNullDevices(t *testing.T) {
	for text, want := range map[string]batch{
		`{"user":"alice","device":null,"activity":null,"after":null}`: {
			plain: []store.PresenceEvent{{User: "alice", At: kit.Now}},
		},
		`{"user":"alice","device":{"id":"x","kind":null,"meta":null}}`: {
			devices: []store.DeviceEvent{{User: "alice", ID: "x", At: kit.Now}},
		},
	} {
		var i request.Item
		require.NoError(t, request.Unmarshal([]byte(text), &i, strict))
		var b batch
		require.Nil(t, b.add(telemetry.Ping, "chat", i.User, i.Event, kit.Now))
		require.Equal(t, want, b)
	}
}

func TestPingAfter(t *testing.T) {
	for random, want := range map[float64]int64{0: 24_000, 0.5: 27_000, 0.9999999: 29_999} {
		s := &server{Shared: NewShared(Config{}), Config: Config{Random: func() float64 { return random }}}
		require.Equal(t, want, s.pingAfter(Settings{PingInterval: 30 * time.Second}))
	}
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
		var i request.Item
		if request.Unmarshal(data, &i, strict) != nil {
			return
		}
		for _, e := range []telemetry.Event{telemetry.Ping, telemetry.Leave} {
			var b batch
			if b.add(e, "chat", i.User, i.Event, kit.Now) != nil {
				require.Zero(t, b.size())
				continue
			}
			require.Equal(t, 1, b.size())
			for _, s := range b.plain {
				requireValidSighting(t, s.User, s.At)
			}
			for _, d := range b.later {
				require.Equal(t, telemetry.Leave, e)
				require.Positive(t, d.After)
				require.LessOrEqual(t, d.After, connections.MaxGrace)
				requireValidSighting(t, d.User, d.At)
				if d.ID != "" {
					b.devices = append(b.devices, d.DeviceEvent)
				}
			}
			for _, d := range b.devices {
				requireValidSighting(t, d.User, d.At)
				require.NoError(t, lastseen.CheckDevice(d.ID))
				require.Contains(t, append(lastseen.DeviceKinds(), ""), d.Kind)
				require.Equal(t, e == telemetry.Leave, d.Gone)
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
	require.LessOrEqual(t, at, kit.Now+request.MaxAhead)
}
