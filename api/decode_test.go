package api

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
)

// TestDeepJSON checks that deeply nested JSON costs neither stack nor time, at any position.
func TestDeepJSON(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	for _, depth := range []int{1_000, 100_000} {
		arrays := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		objects := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		for _, deep := range []string{
			arrays, objects, arrays[:depth], objects[:5*depth], strings.Repeat(`[{"a":`, depth/2),
		} {
			for path, body := range map[string]string{
				"/chat/users/alice/ping":  `{"at":%s}`,
				"/chat/users/alice/leave": `{"unknown":%s}`,
				"/chat/pings":             `{"pings":%s}`,
				"/chat/leaves":            `{"leaves":[{"user":%s}]}`,
				"/chat/lookup":            `{"users":[%s]}`,
			} {
				for _, whole := range []string{fmt.Sprintf(body, deep), deep} {
					r := w.send("POST", path, whole)
					want := http.StatusBadRequest
					if strings.Contains(path, "/users/") && len(whole) > maxOneBody ||
						strings.HasSuffix(path, "/lookup") && len(whole) > maxLookupBody {
						want = http.StatusRequestEntityTooLarge
					}
					require.Equal(t, want, r.status, "%s %.40s: %s", path, whole, r.body)
					require.Less(t, len(r.body), 1<<10)
				}
			}
			w.send("POST", "/chat/pings", deep[:min(len(deep), maxLine)], ndjson).is(t, http.StatusBadRequest)
		}
	}
	require.Zero(t, w.total("chat"))
}

// TestLongJSON checks that many names and long numbers are read in linear time, and that errors quote only a part of
// them.
func TestLongJSON(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	var names strings.Builder
	for i := range 70_000 {
		fmt.Fprintf(&names, `"%x":%d,`, i, i%10)
	}
	long := strings.Repeat("9", 1_000_000)
	for want, bodies := range map[problem.Code][]string{
		problem.InvalidTime: {
			`{"at":{` + names.String() + `"x":0}}`, `{"at":` + long + `}`, `{"at":"` + long + `"}`, `{"at":1e` + long + `}`,
			`{"at":1e-` + long + `}`, `{"at":"2026-` + long + `"}`, `{"at":"` + strings.Repeat(`\u0031`, 150_000) + `"}`,
			`{"at":1e999999999}`, `{"at":"NaN"}`, `{"at":-0}`,
		},
		problem.UnknownField: {
			`{` + names.String() + `"x":0}`, `{"` + long + `":1}`, `{"` + long + `":1,"` + long[:10] + `":`,
		},
		problem.InvalidJSON: {
			`{"at":0x10}`, `{"at":NaN}`, `{"at":-Infinity}`, `{"at":01}`, `{"at":1,"\u0061t":1}`, // the same name
			`{"at":1}` + "\x00", `{"at":1} // a comment`, `{"at":1,}`, `{'at':1}`, `)]}'` + "\n" + `{"at":1}`, `at=1`,
			"{\"\xff" + long + "\":1}",
		},
	} {
		for _, body := range bodies {
			item := strings.Replace(body, "{", `{"user":"alice",`, 1)
			r := w.send("POST", "/chat/pings", `{"pings":[`+item+`]}`)
			require.Equal(t, string(want), r.json(t)["code"], "%.60q: %s", body, r.body)
			require.Less(t, len(r.body), 1<<10, "%.60q", body)
		}
	}
	w.post("/chat/pings", `{"pings":[{"user":"alice","at":0.`+long+`}]}`)
	require.Equal(t, "1970-01-01T00:00:00.999Z", w.get("/chat/users/alice")["last_seen"])
}

// TestEncodings checks that bodies are UTF-8 without a byte order mark, and that a user in JSON is checked like one
// in a path.
func TestEncodings(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	const alice = `{"pings":[{"user":"alice"}]}`
	wide := func(order func(uint16) []byte) (encoded string) {
		for _, unit := range utf16.Encode([]rune("\ufeff" + alice)) {
			encoded += string(order(unit))
		}
		return encoded
	}
	refuses := func(want problem.Code, bodies ...string) {
		t.Helper()
		for _, body := range bodies {
			refusal := w.fails(want, "POST", "/chat/pings", body)
			require.Less(t, len(fmt.Sprint(refusal)), 4<<10, "%.60q", body)
		}
	}
	refuses(problem.InvalidJSON, "\ufeff"+alice, wide(func(u uint16) []byte { return []byte{byte(u), byte(u >> 8)} }),
		wide(func(u uint16) []byte { return []byte{byte(u >> 8), byte(u)} }))
	for want, users := range map[problem.Code][]string{
		problem.InvalidJSON: {
			"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", // overlong
			"\xed\xa0\xbd\xed\xb8\x80", // surrogates as UTF-8
			"\xf4\x90\x80\x80",         // beyond Unicode
			"a\x00b", "a\nb", `\ud83d`, `\ude00\ud83d`, `\x41`,
		},
		problem.InvalidUser: {
			`a\u0000b`, `a\r\nb`, `\u007f`, `\u0085`, `\u002e\u002e`, strings.Repeat(`\u0041`, 257),
			strings.Repeat(`\u0000"},{"user":"`, 9999) + strings.Repeat("é", 500),
		},
	} {
		for _, user := range users {
			refuses(want, `{"pings":[{"user":"`+user+`"}]}`)
		}
	}
	for body, want := range map[string]string{
		`{"pings":[{"user":null}]}`: "The user is missing or empty", `{"pings":[{"user":true}]}`: "/pings/0/user is a JSON boolean",
	} {
		require.Contains(t, w.send("POST", "/chat/pings", body).json(t)["detail"], want)
	}
	require.Zero(t, w.total("chat"))
	w.post("/chat/pings",
		`{"pings":[{"user":"\ud83d\ude00"},{"user":"\u003cscript\u003e"},{"user":"\u200e"},{"user":"%2e%2e"}]}`)
	require.ElementsMatch(t, []string{"😀", "<script>", "\u200e", "%2e%2e"}, names(w.get("/chat/users")))
}

// TestUnknownFieldListsAllowedFields checks that the detail names the field, its position if it is not at the top,
// and the allowed fields.
func TestUnknownFieldListsAllowedFields(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, c := range []struct{ path, body, want string }{
		{alicePing, `{"x":1}`, `Unknown field "x". Allowed: at, device, activity.`},
		{alicePing, `{"At":1}`, `Unknown field "At". Allowed: at, device, activity.`},
		{alicePing, `{"":1}`, `Unknown field "". Allowed: at, device, activity.`},
		{alicePing, `{"a/b":1}`, `Unknown field "a/b". Allowed: at, device, activity.`},
		{"/chat/users/alice/leave", `{"x":1}`, `Unknown field "x". Allowed: at, device, after, token.`},
		{"/chat/lookup", `{"user":"alice"}`, `Unknown field "user". Allowed: users.`},
		{"/chat/pings", `{"leaves":[]}`, `Unknown field "leaves". Allowed: pings.`},
		{"/chat/leaves", `{"pings":[]}`, `Unknown field "pings". Allowed: leaves.`},
		{
			"/chat/pings", `{"pings":[{"user":"a"},{"usr":"b"}]}`,
			`Unknown field "usr" in /pings/1. Allowed: user, at, device, activity, after.`,
		},
		{
			"/chat/leaves", `{"leaves":[{"user":"a","was":1}]}`,
			`Unknown field "was" in /leaves/0. Allowed: user, at, device, activity, after.`,
		},
	} {
		require.Equal(t, c.want, w.fails(problem.UnknownField, "POST", c.path, c.body)["detail"], c.body)
	}
	line := w.fails(problem.UnknownField, "POST", "/chat/pings", "{\"user\":\"a\"}\n{\"usr\":\"b\"}", ndjson)
	require.Equal(t, `Unknown field "usr". Allowed: user, at, device, activity, after.`, line["detail"])
	require.EqualValues(t, 2, line["line"])
}

// repeated returns about a MiB of JSON: a text repeated with commas between, and something before and after.
func repeated(before, text, after string) []byte {
	n := (maxBody - len(before) - len(after)) / (len(text) + 1)
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
	err := unmarshal([]byte(`{"users":[""`+strings.Repeat(`,""`, maxItems-1)+`]}`), &users)
	require.Equal(t, problem.TooManyItems, requireProblem(t, err).Code)
	require.LessOrEqual(t, len(*users.Users), maxLookup+1, "with a slot for the item that is refused")

	var pings pingsBody
	err = unmarshal(repeated(`{"pings":[`, `{}`, `]}`), &pings)
	require.Equal(t, problem.TooManyItems, requireProblem(t, err).Code)
	require.Nil(t, pings.Pings, "nothing is decoded")
	require.Error(t, checkForm([]byte(`{"pings":[{}`+strings.Repeat(",{}", maxItems))), "and the rest is not looked at")
	for _, list := range []string{`{}`, `{"user":"[,,","device":{"meta":[1,2]}}`, `null`} {
		require.NoError(t, checkForm([]byte(`{"at":[1,2],"pings":[`+list+strings.Repeat(","+list, maxItems-1)+`]}`)), list)
	}
}

// BenchmarkRefusedItems measures how long it takes to refuse a list that fills a body.
func BenchmarkRefusedItems(b *testing.B) {
	body := repeated(`{"pings":[`, `{}`, `]}`)
	for b.Loop() {
		if unmarshal(body, &pingsBody{}) == nil {
			b.Fatal("it was not refused")
		}
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
			err := unmarshal(c.body, c.into)
			runtime.ReadMemStats(&after)
			require.Equal(t, c.want, requireProblem(t, err).Code, err)
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
			if err := unmarshal(data, body); err != nil {
				requireProblem(t, err)
			}
		}
		var body pingsBody
		if unmarshal(data, &body) != nil || body.Pings == nil {
			return
		}
		require.True(t, utf8.Valid(data))
		for _, i := range *body.Pings {
			for _, e := range []telemetry.Event{telemetry.Ping, telemetry.Leave} {
				if err := new(batch).add(e, "chat", i.User, i.assertion, testNow); err != nil {
					requireProblem(t, err)
				}
			}
		}
	})
}

// nested is JSON of arrays in each other.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// TestDepth: no JSON of a client nests deeper than 32 levels, wherever it is: the apps that get it from us have parsers
// with limits of their own.
func TestDepth(t *testing.T) {
	for name, asked := range map[string]struct {
		path, before, after string // the JSON around the nested value
		levels              int    // of the JSON around it
		also                []string
	}{
		"app":     {"/chat/calls", `{"from":"alice","to":"bob","app":`, `}`, 1, nil},
		"meta":    {"/chat/users/alice/ping", `{"device":{"id":"d","meta":{"a":`, `}}}`, 3, nil},
		"strings": {"/chat/calls", `{"from":"alice","to":"bob","app":["[[\"[{",`, `]}`, 2, nil},
		"ndjson": {
			"/chat/pings", `{"user":"alice","device":{"id":"d","meta":{"a":`, `}}}`, 3,
			[]string{"Content-Type: application/x-ndjson"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestServer(t, fileStore(t))
			body := asked.before + nested(33-asked.levels) + asked.after
			w.fails(problem.InvalidJSON, "POST", asked.path, body, asked.also...)
			body = asked.before + nested(32-asked.levels) + asked.after
			response := w.send("POST", asked.path, body, asked.also...)
			require.Less(t, response.status, http.StatusBadRequest, "%s", response.body)
		})
	}
	_, err := parseFrame([]byte(`{"hello":{"a":` + nested(31) + `}}`))
	require.ErrorContains(t, err, "32 levels")
	_, err = parseFrame([]byte(`{"hello":{"a":` + nested(30) + `}}`))
	require.NoError(t, err)
}

// TestRelayedNumbers: numbers of apps that other clients get must exist in JavaScript.
func TestRelayedNumbers(t *testing.T) {
	for number, possible := range map[string]bool{
		"1e308": true, "-1.7976931348623157e308": true, "1e-999": true, "12345678901234567890": true,
		"1e309": false, "-1e400": false, "1" + strings.Repeat("0", 400): false,
	} {
		w := newTestServer(t, fileStore(t))
		app := w.send("POST", "/chat/calls", `{"from":"alice","to":"bob","app":{"n":[`+number+`]}}`)
		meta := w.send("POST", "/chat/users/alice/ping", `{"device":{"id":"d","meta":{"n":[`+number+`]}}}`)
		require.Equal(t, possible, app.status == http.StatusCreated, "%s: %s", number, app.body)
		require.Equal(t, possible, meta.status == http.StatusOK, "%s: %s", number, meta.body)
	}
}
