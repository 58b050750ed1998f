package servertests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// TestDeepJSON checks that deeply nested JSON costs neither stack nor time, at any position.
func TestDeepJSON(t *testing.T) {
	t.Parallel()
	w := apitest.NewLimitedServer(t)
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
					r := w.Send("POST", path, whole)
					want := http.StatusBadRequest
					if strings.Contains(path, "/users/") && len(whole) > kit.MaxOneBody ||
						strings.HasSuffix(path, "/lookup") && len(whole) > kit.MaxLookupBody {
						want = http.StatusRequestEntityTooLarge
					}
					require.Equal(t, want, r.Status, "%s %.40s: %s", path, whole, r.Body)
					require.Less(t, len(r.Body), 1<<10)
				}
			}
			w.Send("POST", "/chat/pings", deep[:min(len(deep), kit.MaxLine)], kit.NDJSON).Is(t, http.StatusBadRequest)
		}
	}
	require.Zero(t, w.Total("chat"))
}

// TestLongJSON checks that many names and long numbers are read in linear time, and that errors quote only a part of
// them.
func TestLongJSON(t *testing.T) {
	t.Parallel()
	w := apitest.NewLimitedServer(t)
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
			r := w.Send("POST", "/chat/pings", `{"pings":[`+item+`]}`)
			require.Equal(t, string(want), r.JSON(t)["code"], "%.60q: %s", body, r.Body)
			require.Less(t, len(r.Body), 1<<10, "%.60q", body)
		}
	}
	w.Post("/chat/pings", `{"pings":[{"user":"alice","at":0.`+long+`}]}`)
	require.Equal(t, "1970-01-01T00:00:00.999Z", w.Get("/chat/users/alice")["last_seen"])
}

// TestEncodings checks that bodies are UTF-8 without a byte order mark, and that a user in JSON is checked like one
// in a path.
func TestEncodings(t *testing.T) {
	t.Parallel()
	w := apitest.NewLimitedServer(t)
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
			refusal := w.Fails(want, "POST", "/chat/pings", body)
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
		require.Contains(t, w.Send("POST", "/chat/pings", body).JSON(t)["detail"], want)
	}
	require.Zero(t, w.Total("chat"))
	w.Post("/chat/pings",
		`{"pings":[{"user":"\ud83d\ude00"},{"user":"\u003cscript\u003e"},{"user":"\u200e"},{"user":"%2e%2e"}]}`)
	require.ElementsMatch(t, []string{"😀", "<script>", "\u200e", "%2e%2e"}, kit.Names(w.Get("/chat/users")))
}

// TestUnknownFieldListsAllowedFields checks that the detail names the field, its position if it is not at the top,
// and the allowed fields.
func TestUnknownFieldListsAllowedFields(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, c := range []struct{ path, body, want string }{
		{kit.AlicePing, `{"x":1}`, `Unknown field "x". Allowed: at, device, activity.`},
		{kit.AlicePing, `{"At":1}`, `Unknown field "At". Allowed: at, device, activity.`},
		{kit.AlicePing, `{"":1}`, `Unknown field "". Allowed: at, device, activity.`},
		{kit.AlicePing, `{"a/b":1}`, `Unknown field "a/b". Allowed: at, device, activity.`},
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
		require.Equal(t, c.want, w.Fails(problem.UnknownField, "POST", c.path, c.body)["detail"], c.body)
	}
	line := w.Fails(problem.UnknownField, "POST", "/chat/pings", "{\"user\":\"a\"}\n{\"usr\":\"b\"}", kit.NDJSON)
	require.Equal(t, `Unknown field "usr". Allowed: user, at, device, activity, after.`, line["detail"])
	require.EqualValues(t, 2, line["line"])
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// TestDepth: no JSON of a client nests deeper than 32 levels, wherever it is: the apps that get it from us have parsers
// with their own limits.
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
			w := apitest.NewServer(t, kit.FileStore(t))
			body := asked.before + nested(33-asked.levels) + asked.after
			w.Fails(problem.InvalidJSON, "POST", asked.path, body, asked.also...)
			body = asked.before + nested(32-asked.levels) + asked.after
			response := w.Send("POST", asked.path, body, asked.also...)
			require.Less(t, response.Status, http.StatusBadRequest, "%s", response.Body)
		})
	}
}

// TestRelayedNumbers: numbers of apps that other clients get must exist in JavaScript.
func TestRelayedNumbers(t *testing.T) {
	for number, possible := range map[string]bool{
		"1e308": true, "-1.7976931348623157e308": true, "1e-999": true, "12345678901234567890": true,
		"1e309": false, "-1e400": false, "1" + strings.Repeat("0", 400): false,
	} {
		w := apitest.NewServer(t, kit.FileStore(t))
		app := w.Send("POST", "/chat/calls", `{"from":"alice","to":"bob","app":{"n":[`+number+`]}}`)
		meta := w.Send("POST", "/chat/users/alice/ping", `{"device":{"id":"d","meta":{"n":[`+number+`]}}}`)
		require.Equal(t, possible, app.Status == http.StatusCreated, "%s: %s", number, app.Body)
		require.Equal(t, possible, meta.Status == http.StatusOK, "%s: %s", number, meta.Body)
	}
}

// TestDisruptiveText: what other clients show beside other text has no characters that change the direction of that
// text, or break the line.
func TestDisruptiveText(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, bad := range []string{"\u202eecila", "a\u2028b", "\u2066a"} {
		path := url.PathEscape(bad)
		for _, asked := range []struct {
			method, path, body string
			want               problem.Code
		}{
			{"POST", "/chat/users/" + path + "/ping", "", problem.InvalidUser},
			{"POST", "/chat/pings", `{"pings":[{"user":"` + bad + `"}]}`, problem.InvalidUser},
			{"PUT", "/chat/users/" + path + "/contacts", `{"users":["bob"]}`, problem.InvalidUser},
			{"PUT", "/chat/users/bob/contacts", `{"users":["` + bad + `"]}`, problem.InvalidUser},
			{"POST", "/chat/calls", `{"from":"` + bad + `","to":"bob"}`, problem.InvalidUser},
			{"POST", "/chat/users/bob/ping", `{"device":{"id":"` + bad + `"}}`, problem.InvalidDevice},
		} {
			w.Fails(asked.want, asked.method, asked.path, asked.body)
		}
	}
}

// TestStoredDisruptiveUsers: earlier versions took such IDs. Lists go on after them, and they can be deleted.
func TestStoredDisruptiveUsers(t *testing.T) {
	s := kit.FileStore(t)
	w := apitest.NewServer(t, s)
	const old = "a\u202eb"
	pings := []store.PresenceEvent{{User: old, At: kit.Now}, {User: "bob", At: kit.Now - 1}}
	_, err := s.Ping(t.Context(), "chat", pings)
	require.NoError(t, err)
	first := w.Get("/chat/users?limit=1")
	require.Equal(t, []string{old}, kit.Names(first))
	next := w.Get("/chat/users?limit=1&cursor=" + first["next_cursor"].(string))
	require.Equal(t, []string{"bob"}, kit.Names(next))
	require.Equal(t, http.StatusNoContent, w.Send("DELETE", "/chat/users/"+url.PathEscape(old), "").Status)
	require.Equal(t, []string{"bob"}, kit.Names(w.Get("/chat/users")))
}
