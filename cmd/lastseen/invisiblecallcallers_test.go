package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// Callees with names of the same length, whom a caller must not tell apart.
const (
	leftCallee   = "leftus"
	neverCallee  = "neverx" // was never seen
	hiddenCallee = "hidden" // is invisible, and connected
	busyCallee   = "hidbus" // the same, and in a call
)

// TestCallersOfInvisible compares what callers are sent on their connection, and by requests that wait, until they
// cancel a call or it is missed: of calls to users who left, were never seen, or are invisible, also in another call.
func TestCallersOfInvisible(t *testing.T) {
	t.Parallel()
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		w := newTwins(3, servers, s)
		w.hideCallees(t, "")
		callees := []string{leftCallee, neverCallee, hiddenCallee, busyCallee}
		seen := make([][]*callScript, len(callees))
		t.Run("callers", func(t *testing.T) {
			for i, callee := range callees {
				t.Run(callee, func(t *testing.T) {
					t.Parallel()
					seen[i] = w.ringOut(t, fmt.Sprintf("caller-%d", i), callee)
				})
			}
		})
		for i, callee := range callees {
			for j, what := range []string{"frames", "responses"} {
				require.NotNil(t, seen[i])
				sameSeen(t, callee+": "+what, []*callScript{seen[0][j], seen[i][j]})
			}
		}
		r := w.do(t, 0, "GET", "/v1/namespaces/hide-3/calls?user="+busyCallee, "")
		require.Contains(t, r.body, `"state":"active"`)
	})
}

// hideCallees records the callees in the namespace of hidden users. Their names end with a suffix.
func (w twins) hideCallees(t *testing.T, suffix string) {
	t.Helper()
	path := "/v1/namespaces/" + w.hidden
	for _, user := range []string{leftCallee, hiddenCallee, busyCallee} {
		w.do(t, 0, "POST", path+"/users/"+user+suffix+"/ping", "")
	}
	w.do(t, 0, "POST", path+"/users/"+leftCallee+suffix+"/leave", "")
	for i, user := range []string{hiddenCallee, busyCallee} {
		w.do(t, 0, "PUT", path+"/users/"+user+suffix+"/availability", `{"availability":"invisible"}`)
		w.connectQuietly(t, i, user+suffix)
	}
	w.inCallIn(t, w.hidden, "friend"+suffix, busyCallee+suffix)
}

// connectQuietly connects a user to a server, whatever the connection is sent.
func (w twins) connectQuietly(t *testing.T, server int, user string) {
	t.Helper()
	socket := w.connect(t, server, user, `"device":{"id":"phone","kind":"mobile"}`)
	go func() {
		for range socket.frames { // nothing has to be in them
		}
	}()
}

// ringOut has a connected user call another one, and cancel. Then the user calls again, and waits until the call is
// missed. It returns scripts that noted the frames, and the responses.
func (w twins) ringOut(t *testing.T, caller, callee string) []*callScript {
	t.Helper()
	server := len(w.servers) - 1
	names := strings.NewReplacer(`"`+caller+`"`, "CALLER", `"`+callee+`"`, "CALLEE")
	frames, s := w.scripts(w.servers[server])[1], w.scripts(w.servers[server])[1]
	frames.names, s.names = names, names
	socket := w.connect(t, server, caller, `"device":{"id":"laptop","kind":"web"}`)
	credential := bearerOf(t, caller, w.hidden)
	cursor := s.follow(t, credential, caller, "", "")
	for _, last := range []string{"cancelled", "missed"} {
		path := s.start(t, credential, fmt.Sprintf(`{"to":%q,"device":"laptop","app":"offer"}`, callee))
		require.NotEmpty(t, path)
		socket.collect(t, frames, `"app":"offer"`)
		cursor = s.follow(t, credential, caller, cursor, "ringing")
		s.ask(t, credential, http.MethodPost, path+"/alive", `{"app":"more"}`)
		socket.collect(t, frames, `"app":"more"`)
		cursor = s.follow(t, credential, caller, cursor, "ringing")
		if last == "cancelled" {
			s.end(t, credential, path, caller)
		}
		cursor = s.follow(t, credential, caller, cursor, last)
		socket.collect(t, frames, `"state":"`+last+`"`)
		s.ask(t, credential, http.MethodGet, path, "")
		s.end(t, credential, path, caller)
	}
	writeFrame(t, socket.Conn, `{"activity":{"idle":false},"id":1}`)
	socket.collect(t, frames, `{"ok"`) // nothing else comes
	return []*callScript{frames, s}
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
	return decoded(t, r.body)["cursor"].(string)
}

// collect notes the frames that a connection is sent, until one has a text.
func (s *twinSocket) collect(t *testing.T, to *callScript, text string) {
	t.Helper()
	end := time.After(time.Minute)
	for {
		select {
		case frame, ok := <-s.frames:
			require.True(t, ok, "the connection ended before %s", text)
			if strings.HasPrefix(frame, `{"tick"`) {
				continue
			}
			to.note(t, "frame", frame)
			if strings.Contains(frame, text) {
				return
			}
		case <-end:
			t.Fatalf("no frame with %s", text)
		}
	}
}
