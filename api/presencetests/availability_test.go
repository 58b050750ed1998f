package presencetests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// TestAvailability checks that a user's availability is returned and shown until it is replaced, deleted or ends.
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
