package privacy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// callScript notes all that callers are sent.
type callScript struct {
	site
	names *strings.Replacer // masks those that differ; nil for none
	ids   []string          // of calls, in the order of their appearance
	ring  map[string]string // the times of each call, which stay as they are while it rings
	seen  []string
}

func newScript(s site) *callScript { return &callScript{site: s, ring: map[string]string{}} }

// script returns a script for each site.
func (w *pair) script(t *testing.T) []*callScript {
	t.Helper()
	return []*callScript{newScript(w.gone), newScript(w.hiding)}
}

// rename masks a caller and a callee.
func (s *callScript) rename(caller, callee string) {
	s.names = strings.NewReplacer(`"`+caller+`"`, "CALLER", `"`+callee+`"`, "CALLEE")
}

// sameSeen fails the test unless two scripts noted the same.
func sameSeen(t *testing.T, what string, scripts []*callScript) {
	t.Helper()
	one, other := scripts[0].seen, scripts[1].seen
	require.NotEmpty(t, one)
	for i := range min(len(one), len(other)) {
		require.Equal(t, one[i], other[i], "%s: after %q", what, one[max(0, i-9):i])
	}
	require.Len(t, other, len(one), what)
}

// start begins a call, and returns its path; "" if it does not begin.
func (s *callScript) start(t *testing.T, credential, body string, headers ...string) (path string) {
	t.Helper()
	r := s.ask(t, credential, http.MethodPost, "/calls", body, headers...)
	if r.status != http.StatusCreated {
		return ""
	}
	return "/calls/" + decoded(t, r.body)["id"].(string)
}

// end ends a call of its caller; nothing if path is "".
func (s *callScript) end(t *testing.T, credential, path, caller string) {
	t.Helper()
	if path != "" {
		s.ask(t, credential, http.MethodPost, path+"/end", fmt.Sprintf(`{"user":%q}`, caller))
	}
}

// follow asks for the calls of a user, and returns the cursor. With a cursor, it waits for a change, which leads to a
// state.
func (s *callScript) follow(t *testing.T, credential, user, cursor, state string) (next string) {
	t.Helper()
	path := "/calls?user=" + user
	if cursor != "" {
		path += "&wait=50s&cursor=" + url.QueryEscape(cursor)
	}
	r := s.ask(t, credential, http.MethodGet, path, "")
	require.Contains(t, r.body, state)
	return cursorOf(t, r.body)
}

// collect notes the frames that a connection is sent, until one has a text.
func (s *callScript) collect(t *testing.T, socket *clientSocket, text string) {
	t.Helper()
	for frame := ""; !strings.Contains(frame, text); {
		if frame = socket.next(t, text); !strings.HasPrefix(frame, `{"tick"`) {
			s.note(t, "frame", frame)
		}
	}
}

// ask sends a request about calls, and notes the response.
func (s *callScript) ask(t *testing.T, credential, method, path, body string, headers ...string) response {
	t.Helper()
	r := s.send(t, len(s.servers)-1, method, path, body, credential, headers...)
	require.Less(t, r.status, http.StatusInternalServerError, r.body)
	s.note(t, fmt.Sprint(method, " ", r.status), r.body)
	r.header.Del("Date")
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		s.note(t, name, strings.Join(r.header[name], ", ")) // Location has the ID
	}
	return r
}

// note notes what a caller is sent, with its size. The IDs of calls are numbers there, and times are masked: those of a
// call that rings are checked.
func (s *callScript) note(t *testing.T, what, text string) {
	t.Helper()
	for _, object := range callPattern.FindAllString(text, -1) {
		var c struct {
			ID, State string
			CreatedAt string `json:"created_at"`
			ExpiresAt string `json:"expires_at"`
		}
		require.NoError(t, json.Unmarshal([]byte(object), &c), object)
		if known, ok := s.ring[c.ID]; ok && c.State == "ringing" {
			require.Equal(t, known, c.CreatedAt+c.ExpiresAt)
		} else if c.State == "ringing" {
			created, err := time.Parse(time.RFC3339, c.CreatedAt)
			require.NoError(t, err)
			expires, err := time.Parse(time.RFC3339, c.ExpiresAt)
			require.NoError(t, err)
			require.Equal(t, map[string]time.Duration{hall: 10 * time.Minute, booth: 2 * time.Second}[s.namespace],
				expires.Sub(created))
			s.ring[c.ID] = c.CreatedAt + c.ExpiresAt
		}
	}
	masked := callIDs.ReplaceAllStringFunc(text, func(id string) string {
		if !slices.Contains(s.ids, id) {
			s.ids = append(s.ids, id)
		}
		return fmt.Sprint("CALL-", slices.Index(s.ids, id))
	})
	if s.names != nil {
		masked = s.names.Replace(masked)
	}
	masked = s.mask(callTimes.ReplaceAllString(masked, `"TIME"`), false)
	s.seen = append(s.seen, fmt.Sprintf("%s %d %s", what, len(text), masked))
}

var (
	callPattern = regexp.MustCompile(`\{"id":"[^{}]*(\{[^{}]*\}[^{}]*)*\}`)
	callIDs     = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
	callTimes   = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)
)
