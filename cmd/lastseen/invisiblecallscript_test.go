package main

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

// callScript is one namespace of [twins], in which callers call a user. It notes all that they are sent.
type callScript struct {
	server, own, other string
	names              *strings.Replacer    // masks those that differ; nil for none
	calls              map[string]shownCall // by ID
	seen               []string
}

// shownCall is what of a call is never shown in two ways while it rings.
type shownCall struct {
	ID, State string
	CreatedAt string `json:"created_at"`
	ExpiresAt string `json:"expires_at"`
	number    int
}

// compareCalls compares all that callers get who call a user, on all servers: the one who left and the one who is
// invisible, who can have different names of the same length. Nobody accepts. Callers are new each time, because the
// calls of a user are limited.
func (w twins) compareCalls(t *testing.T, phase, left, hidden string) {
	t.Helper()
	kinds := []string{"key", "blind key", "token"}
	if w.toContacts { // to keys, it makes no difference
		kinds = []string{"token"}
	}
	for i, server := range w.servers {
		scripts := w.scripts(server)
		for j, callee := range []string{left, hidden} {
			scripts[j].names = strings.NewReplacer(fmt.Sprintf("%q", callee), "CALLEE")
			for _, kind := range kinds {
				scripts[j].callBy(t, callee, kind, fmt.Sprint(phase, i, " as ", hidden))
			}
		}
		sameSeen(t, fmt.Sprintf("%s: calls to %s", phase, hidden), scripts)
	}
}

// scripts returns a script for each namespace.
func (w twins) scripts(server string) []*callScript {
	return []*callScript{
		{server: server, own: w.left, other: w.hidden, calls: map[string]shownCall{}},
		{server: server, own: w.hidden, other: w.left, calls: map[string]shownCall{}},
	}
}

// sameSeen fails the test unless two scripts noted the same.
func sameSeen(t *testing.T, what string, scripts []*callScript) {
	t.Helper()
	left, hidden := scripts[0].seen, scripts[1].seen
	require.NotEmpty(t, left)
	for i := range min(len(left), len(hidden)) {
		require.Equal(t, left[i], hidden[i], "%s: after %q", what, left[max(0, i-9):i])
	}
	require.Len(t, hidden, len(left), what)
}

// callBy has a caller call a user in all ways, while somebody else does, too.
func (s *callScript) callBy(t *testing.T, user, kind, phase string) {
	t.Helper()
	from := fmt.Sprintf("%s by %s", phase, kind)
	credential, second := s.caller(t, kind, from), from+" at the same time"
	start := func(credential, from, fields string, headers ...string) (path string) {
		t.Helper()
		return s.start(t, credential, fmt.Sprintf(`{"from":%q,"to":%q%s}`, from, user, fields), headers...)
	}
	for _, present := range []string{"", `,"if":"present"`} {
		for _, key := range []string{"", "Idempotency-Key: a" + present} {
			headers := slices.DeleteFunc([]string{key}, func(s string) bool { return s == "" })
			s.end(t, credential, start(credential, from, `,"app":{"offer":1}`+present, headers...), from)
		}
	}

	const key = "Idempotency-Key: b"
	path := start(credential, from, `,"device":"laptop"`, key)
	start(credential, from, `,"device":"laptop"`, key)
	start(credential, from, ``, key)
	start(credential, from, ``)
	for _, other := range []string{"ls_all", bearerOf(t, second, s.own)} {
		s.end(t, other, start(other, second, ``), second)
		s.end(t, other, start(other, second, `,"if":"present"`), second)
	}
	if path == "" {
		return
	}
	s.ask(t, credential, http.MethodPost, path+"/alive", fmt.Sprintf(`{"user":%q,"app":"more"}`, from))
	for _, action := range []string{"accept", "reject"} {
		s.ask(t, credential, http.MethodPost, path+"/"+action, fmt.Sprintf(`{"user":%q}`, from))
	}
	s.ask(t, bearerOf(t, from, s.own), http.MethodGet, "/calls?user="+user, "")
	list := func(user string) string { return "/calls?user=" + url.QueryEscape(user) }
	for _, reader := range []string{credential, "ls_all", bearerOf(t, from, s.own), bearerOf(t, second, s.own)} {
		for _, asked := range []string{path, list(from), list(second)} {
			s.ask(t, reader, http.MethodGet, asked, "")
			s.ask(t, reader, http.MethodHead, asked, "")
		}
	}
	s.end(t, credential, path, from)
	s.end(t, credential, path, from)
	s.end(t, credential, start(credential, from, `,"device":"laptop"`, key), from)
	s.end(t, "ls_all", start("ls_all", second, ``), second)
}

// caller returns the credential of a caller.
func (s *callScript) caller(t *testing.T, kind, user string) string {
	t.Helper()
	return map[string]string{"key": "ls_all", "blind key": "ls_writer", "token": bearerOf(t, user, s.own)}[kind]
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

// ask sends a request about calls, and notes the response.
func (s *callScript) ask(
	t *testing.T, credential, method, path, body string, headers ...string,
) response {
	t.Helper()
	r := send(t, s.server, method, "/v1/namespaces/"+s.own+path, body, credential, headers...)
	require.Less(t, r.status, http.StatusInternalServerError, r.body)
	s.note(t, fmt.Sprint(method, " ", r.status), r.body)
	r.header.Del("Date")
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		s.note(t, name, strings.Join(r.header[name], ", ")) // Location has the ID
	}
	return r
}

// note notes what a caller is sent, with its size.
func (s *callScript) note(t *testing.T, what, text string) {
	t.Helper()
	s.seen = append(s.seen, fmt.Sprintf("%s %d %s", what, len(text), s.masked(t, text)))
}

var (
	callPattern = regexp.MustCompile(`\{"id":"[^{}]*(\{[^{}]*\}[^{}]*)*\}`)
	callIDs     = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
	callTimes   = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)
)

// masked returns a text without what is random: the IDs of calls are numbers in the order of their appearance. Times
// are checked and masked.
func (s *callScript) masked(t *testing.T, text string) string {
	t.Helper()
	for _, object := range callPattern.FindAllString(text, -1) {
		var c shownCall
		require.NoError(t, json.Unmarshal([]byte(object), &c), object)
		s.check(t, c)
	}
	text = callIDs.ReplaceAllStringFunc(text, func(id string) string { return fmt.Sprint("CALL-", s.calls[id].number) })
	if s.names != nil {
		text = s.names.Replace(text)
	}
	return maskOwn(callTimes.ReplaceAllString(text, `"TIME"`), s.own, s.other)
}

// check checks that the times of a call are those that it began with.
func (s *callScript) check(t *testing.T, c shownCall) {
	t.Helper()
	known, ok := s.calls[c.ID]
	if !ok {
		known = c
		known.number = len(s.calls) + 1
		s.calls[c.ID] = known
	}
	require.Equal(t, known.CreatedAt, c.CreatedAt)
	if c.State == "ringing" {
		require.Equal(t, known.ExpiresAt, c.ExpiresAt)
		created, err := time.Parse(time.RFC3339, c.CreatedAt)
		require.NoError(t, err)
		expires, err := time.Parse(time.RFC3339, c.ExpiresAt)
		require.NoError(t, err)
		require.Equal(t, ringTimeout(s.own), expires.Sub(created))
	}
}
