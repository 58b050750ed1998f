package privacy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestInvisibleInCallsEqualsLeft compares all that others can learn about users who left, and about users who became
// invisible at the same times and go on, also in calls.
func TestInvisibleInCallsEqualsLeft(t *testing.T) {
	t.Parallel()
	testPair(t, hall, func(t *testing.T, w *pair) {
		w.seed(t)
		w.follow(t)
		w.check(t, "before", 0)
		before := w.inCall(t, "alice", "bobby", "alice", "bobby")
		w.check(t, "in a call that all see", 2)
		var at lastseen.Instant
		for _, user := range pairUsers {
			at = w.hide(t, user, "")
		}
		w.check(t, "at once in a call", 3)
		w.goOn(t, at)
		w.each(t, before, "alive", "alice", "alice")
		w.compareCallOf(t, before)
		w.each(t, before, "end", "bobby", "bobby")
		w.compareCallOf(t, before)
		w.check(t, "after the call", 1)

		// To those who are not with them, users who are in calls are like those who are in none.
		accepted := w.inCall(t, "carla", "nobody", "carla", "davey")
		calling := w.inCall(t, "nobody-2", "frank", "erica", "frank") // who is grey
		w.goOn(t, at)
		w.each(t, accepted, "alive", "nobody", "davey")
		w.check(t, "in calls while invisible", 1)
		// Calls that ring are like those to users who left, also when the other calls have ended, the callee is visible
		// again, or is deleted.
		ringing := w.script(t)
		others := func(phase string) {
			for _, s := range ringing {
				for _, callee := range []string{"carla", "frank", "davey", "erica"} { // two of them are busy at first
					caller := phase + " calls " + callee
					s.end(t, "ls_all", s.start(t, "ls_all", fmt.Sprintf(`{"from":%q,"to":%q}`, caller, callee)), caller)
				}
				s.ask(t, "ls_all", http.MethodGet, "/calls?user=first", "")
			}
			sameSeen(t, phase, ringing)
		}
		for _, s := range ringing {
			require.NotEmpty(t, s.start(t, "ls_all", `{"from":"first","to":"davey"}`))
		}
		others("ringing")
		w.each(t, accepted, "end", "nobody", "davey")
		w.each(t, calling, "end", "nobody-2", "erica")
		w.check(t, "after those calls", 1)
		others("after a call")
		w.both(t, "PUT", "/users/davey/availability", `{"note":"back"}`)
		w.check(t, "visible while a call rings", 1)
		others("visible")
		w.both(t, "DELETE", "/users/davey", "")
		others("deleted")
	})
}

// inCall begins a call between two users in each site, and has the callees accept it. It returns the paths.
func (w *pair) inCall(t *testing.T, goneFrom, goneTo, hidingFrom, hidingTo string) (paths [2]string) {
	t.Helper()
	return [2]string{w.gone.inCall(t, goneFrom, goneTo), w.hiding.inCall(t, hidingFrom, hidingTo)}
}

func (s site) inCall(t testing.TB, from, to string) (path string) {
	t.Helper()
	var call struct{ ID string }
	r := s.do(t, 0, "POST", "/calls", fmt.Sprintf(`{"from":%q,"to":%q}`, from, to))
	require.NoError(t, json.Unmarshal([]byte(r.body), &call))
	path = "/calls/" + call.ID
	require.Contains(t, s.do(t, 1, "POST", path+"/accept", fmt.Sprintf(`{"user":%q}`, to)).body, `"state":"active"`)
	return path
}

// each has a party of a call in each site do something.
func (w *pair) each(t *testing.T, paths [2]string, action, gone, hiding string) {
	t.Helper()
	w.gone.do(t, 0, "POST", paths[0]+"/"+action, fmt.Sprintf(`{"user":%q}`, gone))
	w.hiding.do(t, 1, "POST", paths[1]+"/"+action, fmt.Sprintf(`{"user":%q}`, hiding))
}

// compareCallOf compares what readers and bobby, who is a party, get about a call.
func (w *pair) compareCallOf(t *testing.T, paths [2]string) {
	t.Helper()
	for _, credential := range w.readers(t) {
		scripts := w.script(t)
		for i, s := range scripts {
			s.ask(t, credential, http.MethodGet, paths[i], "")
			s.ask(t, credential, http.MethodGet, "/calls?user=bobby", "")
		}
		sameSeen(t, "a call of bobby", scripts)
	}
}

// Callees with names of the same length, whom a caller must not tell apart.
const (
	leftCallee   = "leftus"
	neverCallee  = "neverx" // was never seen
	hiddenCallee = "hidden" // is invisible, and connected
	busyCallee   = "hidbus" // the same, and in a call
)

// TestCallersOfInvisible compares what callers are sent on their connection, and by requests that wait, until they
// cancel a call or it is missed: of calls to users who left, were never seen, or are invisible, also in another call.
// The callers act at the same time, so that all of them wait once.
func TestCallersOfInvisible(t *testing.T) {
	t.Parallel()
	testPair(t, booth, func(t *testing.T, w *pair) {
		s := w.hiding
		s.hideCallees(t, "")
		var frames, responses []*callScript
		var missed []func()
		for i, callee := range []string{leftCallee, neverCallee, hiddenCallee, busyCallee} {
			frame, request := newScript(s), newScript(s)
			frames, responses = append(frames, frame), append(responses, request)
			caller := fmt.Sprintf("caller-%d", i)
			frame.rename(caller, callee)
			request.rename(caller, callee)
			missed = append(missed, ringOut(t, caller, callee, frame, request))
		}
		for i := range missed {
			missed[i]()
			sameSeen(t, "frames", []*callScript{frames[0], frames[i]})
			sameSeen(t, "responses", []*callScript{responses[0], responses[i]})
		}
		require.Contains(t, s.do(t, 0, "GET", "/calls?user="+busyCallee, "").body, `"state":"active"`)
	})
}

// hideCallees records the callees. Their names end with a suffix.
func (s site) hideCallees(t testing.TB, suffix string) {
	t.Helper()
	for _, user := range []string{leftCallee, hiddenCallee, busyCallee} {
		s.do(t, 0, "POST", "/users/"+user+suffix+"/ping", "")
	}
	s.do(t, 0, "POST", "/users/"+leftCallee+suffix+"/leave", "")
	for i, user := range []string{hiddenCallee, busyCallee} {
		s.do(t, 0, "PUT", "/users/"+user+suffix+"/availability", `{"availability":"invisible"}`)
		s.connectQuietly(t, i, user+suffix)
	}
	s.inCall(t, "friend"+suffix, busyCallee+suffix)
}

// ringOut has a connected user call another one and cancel, and then call again. It returns a function that waits until
// that call is missed. The scripts note the frames, and the responses.
func ringOut(t *testing.T, caller, callee string, frames, s *callScript) (missed func()) {
	t.Helper()
	server := len(s.servers) - 1
	socket := s.connect(t, server, caller, `,"device":{"id":"laptop","kind":"web"}`)
	credential := s.tokenOf(t, caller)
	cursor := s.follow(t, credential, caller, "", "")
	ring := func() (path string) {
		path = s.start(t, credential, fmt.Sprintf(`{"to":%q,"device":"laptop","app":"offer"}`, callee))
		require.NotEmpty(t, path)
		frames.collect(t, socket, `"app":"offer"`)
		cursor = s.follow(t, credential, caller, cursor, "ringing")
		return path
	}
	end := func(path, state string) {
		cursor = s.follow(t, credential, caller, cursor, state)
		frames.collect(t, socket, `"state":"`+state+`"`)
		s.ask(t, credential, http.MethodGet, path, "")
		s.end(t, credential, path, caller)
	}
	path := ring()
	s.ask(t, credential, http.MethodPost, path+"/alive", `{"app":"more"}`)
	frames.collect(t, socket, `"app":"more"`)
	cursor = s.follow(t, credential, caller, cursor, "ringing")
	s.end(t, credential, path, caller)
	end(path, "cancelled")
	path = ring()
	return func() {
		end(path, "missed")
		socket.write(t, `{"activity":{"idle":false},"id":1}`)
		frames.collect(t, socket, `{"ok"`) // nothing else comes
	}
}
