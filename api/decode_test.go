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
)

// TestDeepJSON checks that deeply nested JSON costs neither stack nor time, at any position.
func TestDeepJSON(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	for _, depth := range []int{1_000, 100_000} {
		arrays := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		objects := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		for _, deep := range []string{
			arrays, objects, arrays[:depth], objects[:5*depth],
			strings.Repeat(`[{"a":`, depth/2),
		} {
			for path, body := range map[string]string{
				"/chat/users/alice/ping":  `{"at":%s}`,
				"/chat/users/alice/leave": `{"unknown":%s}`,
				"/chat/pings":             `{"pings":%s}`,
				"/chat/leaves":            `{"leaves":[{"user":%s}]}`,
				"/chat/lookup":            `{"users":[%s]}`,
			} {
				for _, whole := range []string{fmt.Sprintf(body, deep), deep} {
					r := w.send(http.MethodPost, path, whole)
					want := http.StatusBadRequest
					if strings.Contains(path, "/users/") && len(whole) > maxOneBody ||
						strings.HasSuffix(path, "/lookup") && len(whole) > maxLookupBody {
						want = http.StatusRequestEntityTooLarge
					}
					require.Equal(t, want, r.status, "%s %.40s: %s", path, whole, r.body)
					require.Less(t, len(r.body), 1<<10)
				}
			}
			r := w.send(http.MethodPost, "/chat/pings", deep[:min(len(deep), maxLine)], ndjson)
			require.Equal(t, http.StatusBadRequest, r.status, r.body)
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
	for body, want := range map[string]code{
		`{"at":{` + names.String() + `"x":0}}`:               codeInvalidTime,
		`{` + names.String() + `"x":0}`:                      codeUnknownField,
		`{"` + long + `":1}`:                                 codeUnknownField,
		`{"at":` + long + `}`:                                codeInvalidTime,
		`{"at":"` + long + `"}`:                              codeInvalidTime,
		`{"at":1e` + long + `}`:                              codeInvalidTime,
		`{"at":1e-` + long + `}`:                             codeInvalidTime,
		`{"at":"2026-` + long + `"}`:                         codeInvalidTime,
		`{"at":"` + strings.Repeat(`\u0031`, 150_000) + `"}`: codeInvalidTime,
		`{"at":1e999999999}`:                                 codeInvalidTime,
		`{"at":0x10}`:                                        codeInvalidJSON,
		`{"at":NaN}`:                                         codeInvalidJSON,
		`{"at":-Infinity}`:                                   codeInvalidJSON,
		`{"at":"NaN"}`:                                       codeInvalidTime,
		`{"at":-0}`:                                          codeInvalidTime,
		`{"at":01}`:                                          codeInvalidJSON,
		`{"at":1,"\u0061t":1}`:                               codeInvalidJSON, // the same name
		`{"at":1}` + "\x00":                                  codeInvalidJSON,
		`{"at":1} // a comment`:                              codeInvalidJSON,
		`{"at":1,}`:                                          codeInvalidJSON,
		`{'at':1}`:                                           codeInvalidJSON,
		`)]}'` + "\n" + `{"at":1}`:                           codeInvalidJSON,
		`at=1`:                                               codeInvalidJSON,
		"{\"\xff" + long + "\":1}":                           codeInvalidJSON,
		`{"` + long + `":1,"` + long[:10] + `":`:             codeUnknownField,
	} {
		item := strings.Replace(body, "{", `{"user":"alice",`, 1)
		r := w.send(http.MethodPost, "/chat/pings", `{"pings":[`+item+`]}`)
		require.Equal(t, string(want), r.json(t)["code"], "%.60q: %s", body, r.body)
		require.Less(t, len(r.body), 1<<10, "%.60q", body)
	}
	w.post("/chat/pings", `{"pings":[{"user":"alice","at":0.`+long+`}]}`)
	require.Equal(t, "1970-01-01T00:00:00.999Z", w.get("/chat/users/alice")["last_seen"])
}

// TestEncodings checks that bodies are UTF-8 without a byte order mark, and that a user in JSON is checked like one
// in a path.
func TestEncodings(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	wide := func(order func(uint16) []byte) (encoded string) {
		for _, unit := range utf16.Encode([]rune("\ufeff" + `{"pings":[{"user":"alice"}]}`)) {
			encoded += string(order(unit))
		}
		return encoded
	}
	for body, want := range map[string]code{
		"\ufeff" + `{"pings":[{"user":"alice"}]}`:                            codeInvalidJSON,
		wide(func(u uint16) []byte { return []byte{byte(u), byte(u >> 8)} }): codeInvalidJSON,
		wide(func(u uint16) []byte { return []byte{byte(u >> 8), byte(u)} }): codeInvalidJSON,
		"{\"pings\":[{\"user\":\"\xc0\xaf\"}]}":                              codeInvalidJSON, // overlong
		"{\"pings\":[{\"user\":\"\xe0\x80\xaf\"}]}":                          codeInvalidJSON,
		"{\"pings\":[{\"user\":\"\xf0\x80\x80\xaf\"}]}":                      codeInvalidJSON,
		"{\"pings\":[{\"user\":\"\xed\xa0\xbd\xed\xb8\x80\"}]}":              codeInvalidJSON, // surrogates as UTF-8
		"{\"pings\":[{\"user\":\"\xf4\x90\x80\x80\"}]}":                      codeInvalidJSON, // beyond Unicode
		"{\"pings\":[{\"user\":\"a\x00b\"}]}":                                codeInvalidJSON,
		"{\"pings\":[{\"user\":\"a\nb\"}]}":                                  codeInvalidJSON,
		`{"pings":[{"user":"\ud83d"}]}`:                                      codeInvalidJSON,
		`{"pings":[{"user":"\ude00\ud83d"}]}`:                                codeInvalidJSON,
		`{"pings":[{"user":"\x41"}]}`:                                        codeInvalidJSON,
		`{"pings":[{"user":"a\u0000b"}]}`:                                    codeInvalidUser,
		`{"pings":[{"user":"a\r\nb"}]}`:                                      codeInvalidUser,
		`{"pings":[{"user":"\u007f"}]}`:                                      codeInvalidUser,
		`{"pings":[{"user":"\u0085"}]}`:                                      codeInvalidUser,
		`{"pings":[{"user":"\u002e\u002e"}]}`:                                codeInvalidUser,
		`{"pings":[{"user":"` + strings.Repeat(`\u0041`, 257) + `"}]}`:       codeInvalidUser,
		`{"pings":[` + strings.Repeat(`{"user":"\u0000"},`, 9999) + `{"user":"` + strings.Repeat("é", 500) +
			`"}]}`: codeInvalidUser,
	} {
		problem := w.fails(want, http.MethodPost, "/chat/pings", body)
		require.Less(t, len(fmt.Sprint(problem)), 4<<10, "%.60q", body)
	}
	require.Zero(t, w.total("chat"))
	w.post("/chat/pings",
		`{"pings":[{"user":"\ud83d\ude00"},{"user":"\u003cscript\u003e"},{"user":"\u202e"},{"user":"%2e%2e"}]}`)
	require.ElementsMatch(t, []string{"😀", "<script>", "\u202e", "%2e%2e"}, names(w.get("/chat/users")))
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
		require.Equal(t, c.want, w.fails(codeUnknownField, http.MethodPost, c.path, c.body)["detail"], c.body)
	}
	line := w.fails(codeUnknownField, http.MethodPost, "/chat/pings", "{\"user\":\"a\"}\n{\"usr\":\"b\"}", ndjson)
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
	err := unmarshal(repeated(`{"users":[`, `""`, `]}`), &users)
	require.Equal(t, codeTooManyItems, requireProblem(t, err).code)
	require.LessOrEqual(t, len(*users.Users), maxLookup+1, "with a slot for the item that is refused")

	var pings pingsBody
	err = unmarshal(repeated(`{"pings":[`, `{}`, `]}`), &pings)
	require.Equal(t, codeTooManyItems, requireProblem(t, err).code)
	require.LessOrEqual(t, len(*pings.Pings), maxItems+1, "with a slot for the item that is refused")
}

// TestRefusedBodiesUseLittleMemory measures the memory that refusing a body of a MiB allocates.
func TestRefusedBodiesUseLittleMemory(t *testing.T) {
	wide := named(100_000)
	for name, c := range map[string]struct {
		body []byte
		into any
		want code
	}{
		"users": {repeated(`{"users":[`, `""`, `]}`), &lookupBody{}, codeTooManyItems},
		"a list that is too long, and then no JSON": {
			repeated(`{"users":[`, `""`, ``), &lookupBody{},
			codeTooManyItems,
		},
		"names for users":          {[]byte(`{"users":{` + wide + `}}`), &lookupBody{}, codeInvalidJSON},
		"names in a user":          {[]byte(`{"users":[{` + wide + `}]}`), &lookupBody{}, codeInvalidJSON},
		"a list for a user":        {repeated(`{"users":[[`, `0`, `]]}`), &lookupBody{}, codeInvalidJSON},
		"a list as the body":       {repeated(`[`, `{}`, `]`), &lookupBody{}, codeInvalidJSON},
		"names in a list":          {[]byte(`[{` + wide + `}]`), &pingsBody{}, codeInvalidJSON},
		"names in the user":        {[]byte(`{"pings":[{"user":{` + wide + `}}]}`), &pingsBody{}, codeInvalidJSON},
		"names in the time":        {[]byte(`{"pings":[{"at":{` + wide + `}}]}`), &pingsBody{}, codeInvalidTime},
		"names in a list of pings": {[]byte(`{"pings":[[{` + wide + `}]]}`), &pingsBody{}, codeInvalidJSON},
		"unknown names":            {[]byte(`{"pings":[{` + wide + `}]}`), &pingsBody{}, codeUnknownField},
		"unknown names of a ping":  {[]byte(`{` + wide + `}`), &pingBody{}, codeUnknownField},
		"names in the one time":    {[]byte(`{"at":{` + wide + `}}`), &pingBody{}, codeInvalidTime},
		"names in a token":         {[]byte(`{"token":{` + wide + `}}`), &leaveBody{}, codeInvalidJSON},
		"lists in lists":           {[]byte(`{"pings":` + strings.Repeat("[", 1<<20)), &pingsBody{}, codeInvalidJSON},
		"a list in a time":         {[]byte(`{"at":` + strings.Repeat("[", 1<<20)), &pingBody{}, codeInvalidTime},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := unmarshal(c.body, c.into)
			runtime.ReadMemStats(&after)
			require.Equal(t, c.want, requireProblem(t, err).code, err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<10), "bytes")
		})
	}
}

// BenchmarkDecode measures decoding valid bodies and bodies that are far too long.
func BenchmarkDecode(b *testing.B) {
	var ids, items []string
	for n := range maxItems {
		ids, items = append(ids, `"`+benchUser(n)+`"`), append(items, `{"user":"`+benchUser(n)+`"}`)
	}
	honest := []byte(`{"users":[` + strings.Join(ids[:maxLookup], ",") + `]}`)
	pings := []byte(`{"pings":[` + strings.Join(items, ",") + `]}`)
	for _, c := range []struct {
		name string
		body []byte
		into func() any
	}{
		{"1,000 users", honest, func() any { return &lookupBody{} }},
		{"349,522 users", repeated(`{"users":[`, `""`, `]}`), func() any { return &lookupBody{} }},
		{"10,000 pings", pings, func() any { return &pingsBody{} }},
		{"349,522 pings", repeated(`{"pings":[`, `{}`, `]}`), func() any { return &pingsBody{} }},
		{"one ping", []byte(`{"at":1795176000.5}`), func() any { return &pingBody{} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = unmarshal(c.body, c.into())
			}
		})
	}
}

// FuzzBody checks that a body is refused with a readable error, or is valid for the standard library, too.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"pings":[{"user":"alice"},{"user":"bob","at":100123.5}]}`, `{"pings":[]}`, `{"pings":null}`,
		`{"pings":[null]}`, "\ufeff{}",
		`{"pings":[{"user":"\ud800"}]}`, `{"pings":[{"user":"a","user":"b"}]}`, `{"PINGS":[]}`, `{"pings":[[[[`,
		`{"pings":[{"at":{"a":[1]}}]}`, `null`, `{} {}`,
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
			for _, e := range []event{eventPing, eventLeave} {
				if err := new(batch).add(e, "chat", i.User, i.assertion, testNow); err != nil {
					requireProblem(t, err)
				}
			}
		}
	})
}
