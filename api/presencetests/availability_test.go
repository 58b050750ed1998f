package presencetests

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// TestAvailability checks that what a user says is returned and shown until it is replaced, deleted or ends.
func TestAvailability(t *testing.T) {
	t.Parallel()
	smileys := strings.Repeat("😀", 140)
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		w.Post(kit.AlicePing, "")
		says := func(availability, note, until any) map[string]any {
			t.Helper()
			said := w.Get(kit.AliceAvailability)
			require.Equal(t, map[string]any{
				"user": "alice", "availability": availability, "note": note,
				"until": until,
			}, said)
			shown := w.Get(kit.AliceUser)
			require.Equal(t, []any{"green", availability, note, until},
				[]any{shown["status"], shown["availability"], shown["note"], shown["availability_until"]})
			return said
		}
		says(nil, nil, nil)
		for _, step := range []struct {
			body                      string
			availability, note, until any
		}{
			{
				`{"availability":"busy","note":"<i>in</i> a \"meeting\" 🗓","for":"1h30m"}`,
				"busy", `<i>in</i> a "meeting" 🗓`, "2026-11-20T13:30:00.000Z",
			},
			{`{"availability":"away"}`, "away", nil, nil},
			{`{"availability":null,"note":"back soon","for":60.5}`, nil, "back soon", "2026-11-20T12:01:00.500Z"},
			{`{"note":"` + smileys + `","until":1795176001,"for":null}`, nil, smileys, "2026-11-20T12:00:01.000Z"},
			{`{"availability":"busy","until":"9999-12-31T23:59:59.999Z"}`, "busy", nil, "9999-12-31T23:59:59.999Z"},
			{`{}`, nil, nil, nil},
			{`{"availability":"away"}`, "away", nil, nil},
		} {
			response := w.Say(step.body)
			require.Equal(t, says(step.availability, step.note, step.until), response)
		}
		for range 2 {
			w.Write("DELETE", kit.AliceAvailability, "")
			says(nil, nil, nil)
		}
		w.Say(`{"availability":"away","for":"10s"}`)
		for _, path := range []string{kit.AliceUser, kit.AliceAvailability, "/chat/users", kit.AliceLookup} {
			for age, want := range map[time.Duration]bool{
				0: true, 9999 * time.Millisecond: true,
				10 * time.Second: false,
			} {
				w.Store.Set(kit.Now.Add(age))
				require.Equal(t, want, strings.Contains(w.Send("GET", path, "").Body, `"away"`), "%s %s", path, age)
			}
		}
	})
}

// TestAvailabilityErrors checks what is refused, and that nothing is recorded then.
func TestAvailabilityErrors(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Say(`{"availability":"away"}`)
	for want, bodies := range map[problem.Code][]string{
		problem.InvalidJSON: {
			``, ` `, `[]`, `{"availability":1}`, `{"note":["x"]}`, `{"for":{}}`, `{"until":true}`, `{"note":"a","note":"b"}`,
		},
		problem.UnknownField: {`{"status":"green"}`},
		problem.InvalidAvailability: {
			`{"availability":"offline"}`, `{"availability":"Busy"}`, `{"for":"1h"}`, `{"until":"2026-11-20T13:00:00Z"}`,
			`{"note":"x","for":"1h","until":"2026-11-20T13:00:00Z"}`,
		},
		problem.InvalidNote: {
			`{"note":"` + strings.Repeat("ä", 141) + `"}`, `{"note":"a\nb"}`, `{"note":"\u202e"}`, `{"note":"\u0000"}`,
		},
		problem.InvalidDuration: {
			`{"note":"x","for":"0"}`, `{"note":"x","for":"-1s"}`, `{"note":"x","for":""}`, `{"note":"x","for":"11y"}`,
		},
		problem.InvalidTime: {
			`{"note":"x","until":"soon"}`, `{"note":"x","until":"2026-11-20T12:00:00Z"}`, `{"note":"x","until":-1}`,
			`{"note":"x","until":1795176000000}`, `{"note":"x","until":"10000-01-01T00:00:00Z"}`,
		},
		problem.BodyTooLarge: {`{"note":"` + strings.Repeat(" ", kit.MaxOneBody) + `"}`},
	} {
		for _, body := range bodies {
			w.Fails(want, "PUT", kit.AliceAvailability, body)
		}
	}
	w.Fails(problem.InvalidUser, "PUT", "/chat/users/%00/availability", `{}`)
	w.Fails(problem.InvalidNamespace, "GET", "/.chat/users/alice/availability", "")
	w.Fails(problem.UnknownParameter, "GET", kit.AliceAvailability+"?as_of=0", "")
	for _, missing := range []string{
		"\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length: 4\r\n\r\nnull",
	} {
		got := w.Exchange("PUT /v1/namespaces" + kit.AliceAvailability + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + missing)
		got[0].Is(t, http.StatusBadRequest, missing)
	}
	require.Equal(t, "away", w.Get(kit.AliceAvailability)["availability"])
}

// TestNotReady checks the response if the store may lose what hides users.
func TestNotReady(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.Failing(kit.FileStore(t), fmt.Errorf("a store: %w", store.ErrEvicts)))
	r := w.Send("PUT", kit.AliceAvailability, `{"availability":"invisible"}`).Is(t, http.StatusServiceUnavailable)
	require.Equal(t, string(problem.AvailabilityNotReady), r.JSON(t)["code"])
	require.NotContains(t, w.Log.String(), "level=ERROR")
}

// TestInvisibleIsLeft compares what others get about a user who left and one who became invisible at the same time and
// goes on pinging.
func TestInvisibleIsLeft(t *testing.T) {
	t.Parallel()
	authenticator, headers := kit.Callers(t)
	t.Run("file", func(t *testing.T) {
		testInvisibleIsLeft(t, apitest.NewAuthServer(t, kit.FileStore(t), authenticator), headers)
	})
	t.Run("redis", func(t *testing.T) {
		testInvisibleIsLeft(t, apitest.NewAuthServer(t, kit.NewRedis(t), authenticator),
			headers)
	})
}

func testInvisibleIsLeft(t *testing.T, w *apitest.Server, headers map[string]string) {
	t.Helper()
	send := func(caller, method, path, body string) kit.Response {
		t.Helper()
		r := w.Send(method, path, body, "Authorization: "+headers[caller])
		require.Less(t, r.Status, 300, r.Body)
		return r
	}
	users := []string{"alice", "blice"}
	w.Store.Set(kit.Now - 60_000)
	for _, user := range users {
		send("all", "POST", "/chat/users/"+user+"/ping", `{"device":{"id":"tab","kind":"web"}}`)
		send("all", "PUT", "/chat/users/"+user+"/availability", `{"availability":"away","note":"lunch"}`)
	}
	w.Store.Set(kit.Now)
	send("all", "PUT", kit.AliceAvailability, `{"availability":"invisible","note":"hush","for":"1h"}`)
	send("all", "POST", "/chat/users/blice/leave", "")
	for range 2 {
		w.Store.Pass(30_000)
		ping := send("alice", "POST", kit.AlicePing, `{"device":{"id":"tab","kind":"mobile"},"activity":"idle"}`)
		require.Equal(t, "grey", ping.JSON(t)["status"])
		send("ping", "POST", kit.AlicePing, "").Is(t, http.StatusNoContent)
		for _, path := range []string{
			"/chat/users/%s", "/chat/users/%s/dot.svg", "/chat/lookup?user=%s", "/chat/users/%s/devices",
			"/chat/changes?user=%s", "/chat/counts",
		} {
			seen := [2]kit.Response{}
			for i, user := range users {
				path := strings.ReplaceAll(path, "%s", user)
				seen[i] = send("read", "GET", path, "")
				seen[i].Body = strings.ReplaceAll(seen[i].Body, user, "someone")
				if strings.Contains(path, "/changes") { // which go on between two requests
					moves := regexp.MustCompile(`"(as_of|cursor)":"[^"]*"`)
					seen[i].Body = moves.ReplaceAllString(seen[i].Body, "")
				}
				for _, name := range []string{"X-Request-Id", "Date", "Etag"} { // the ETag is a hash of the name, too
					seen[i].Header.Del(name)
				}
				require.NotContains(t, seen[i].Body, "invisible")
				require.NotContains(t, seen[i].Body, "hush")
			}
			require.Equal(t, seen[1], seen[0], path)
		}
		listed := send("read", "GET", "/chat/users", "").JSON(t)["users"].([]any)
		delete(listed[0].(map[string]any), "user")
		delete(listed[1].(map[string]any), "user")
		require.Equal(t, listed[0], listed[1])
	}
	require.Equal(t, "away", send("read", "GET", kit.AliceUser, "").JSON(t)["availability"])
	own := send("alice", "GET", kit.AliceAvailability, "").JSON(t)
	require.Equal(t, []any{"invisible", "hush"}, []any{own["availability"], own["note"]})
	send("alice", "DELETE", kit.AliceAvailability, "")
	w.Store.Pass(1)
	require.Equal(t, "green", send("alice", "POST", kit.AlicePing, "").JSON(t)["status"])
}
