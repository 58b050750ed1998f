package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestInvisibleInCallsEqualsLeft compares all that others can learn about users who left, and about users who became
// invisible at the same times and go on, also in calls.
func TestInvisibleInCallsEqualsLeft(t *testing.T) {
	t.Parallel()
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		w := newTwins(0, servers, s)
		begun := time.Now()
		w.seed(t, begun)
		f := w.begin(t, begun)
		f.check(t, "before", 0)

		before := w.inCall(t, "alice", "bobby", "alice", "bobby")
		f.checkBoth(t, "in a call that all see", 1, 2)
		at := w.hide(t, twinUsers, "")
		// A user who left and is still in a call is busy. One who is invisible is like one who hung up and left.
		f.callees = map[string]string{"alice": "davey"}
		f.check(t, "at once in a call", 2) // without Erica, whom nobody has seen
		w.goOn(t, at)
		w.keep(t, before, "alice", "alice")
		f.check(t, "while the call goes on", 0)
		f.compareCallOf(t, before, "bobby")
		w.endCall(t, before, "bobby", "bobby")
		f.callees = nil
		f.compareCallOf(t, before, "bobby")
		f.checkBoth(t, "after the call", 0, 1)

		// To those who are not with them, users who are in calls are like those who are in none.
		accepted := w.inCall(t, "carla", "nobody", "carla", "davey")
		f.checkBoth(t, "accepted while invisible", 0, 1)
		calling := w.inCall(t, "nobody-2", "frank", "erica", "frank") // who is grey
		f.check(t, "calling while invisible", 0)
		w.goOn(t, at)
		w.keep(t, accepted, "nobody", "davey")
		w.compareBusy(t, "carla", "frank")
		f.check(t, "while others are in calls", 0)
		w.endCall(t, accepted, "nobody", "davey")
		w.endCall(t, calling, "nobody-2", "erica")
		f.checkBoth(t, "after those calls", 0, 1)
		w.compareAfterwards(t, f)
	})
}

// compareAfterwards compares calls that begin to ring while the callee, who is invisible, is in another call, and that
// ring when the callee no longer is, and when the callee is visible again or is deleted.
func (w twins) compareAfterwards(t *testing.T, f *twinFollowers) {
	t.Helper()
	accepted := w.inCall(t, "carla", "nobody", "carla", "davey")
	w.inCall(t, "nobody-2", "frank", "erica", "frank")
	f.checkBoth(t, "in calls again", 0, 1)
	scripts := w.scripts(w.servers[0])
	paths := map[*callScript][]string{}
	for _, s := range scripts {
		for _, user := range []string{"davey", "erica"} {
			path := s.start(t, "ls_all", fmt.Sprintf(`{"from":"first-%s","to":%q}`, user, user))
			require.NotEmpty(t, path)
			paths[s] = append(paths[s], path)
		}
	}
	others := func(phase string) {
		t.Helper()
		for _, s := range scripts {
			for _, user := range []string{"davey", "erica"} {
				s.callBy(t, user, "key", phase+" as "+user)
				s.callBy(t, user, "token", phase+" as "+user)
			}
		}
		sameSeen(t, phase, scripts)
	}
	others("ringing")
	w.endCall(t, accepted, "nobody", "davey")
	f.checkBoth(t, "after a call while another rings", 0, 1)
	others("ringing after a call")
	w.both(t, "PUT", "/users/davey/availability", `{"note":"back"}`)
	f.check(t, "visible while a call rings", 1)
	others("ringing after going visible")
	for _, s := range scripts {
		s.end(t, "ls_all", paths[s][0], "first-davey")
	}
	others("cancelled")
	w.both(t, "DELETE", "/users/erica", "")
	f.check(t, "deleted while a call rings", 1)
	for _, s := range scripts {
		s.end(t, "ls_all", paths[s][1], "first-erica")
	}
	others("deleted")
}

// twinCall is a call in each namespace: of the one whose users leave, and of the other.
type twinCall [2]string

// inCall begins a call between two users in each namespace, and has the callees accept it.
func (w twins) inCall(t *testing.T, leftFrom, leftTo, hiddenFrom, hiddenTo string) (c twinCall) {
	t.Helper()
	c[0] = w.inCallIn(t, w.left, leftFrom, leftTo)
	c[1] = w.inCallIn(t, w.hidden, hiddenFrom, hiddenTo)
	return c
}

// inCallIn begins a call in a namespace, has the callee accept it, and returns its path.
func (w twins) inCallIn(t *testing.T, namespace, from, to string) (path string) {
	t.Helper()
	calls := "/v1/namespaces/" + namespace + "/calls"
	r := w.do(t, 0, "POST", calls, fmt.Sprintf(`{"from":%q,"to":%q}`, from, to))
	path = calls + "/" + decoded(t, r.body)["id"].(string)
	r = w.do(t, 1, "POST", path+"/accept", fmt.Sprintf(`{"user":%q}`, to))
	require.Equal(t, string(lastseen.Active), decoded(t, r.body)["state"])
	return path
}

// keep has a party of each call say that they still take part.
func (w twins) keep(t *testing.T, c twinCall, left, hidden string) {
	t.Helper()
	for i, user := range []string{left, hidden} {
		w.do(t, i, "POST", c[i]+"/alive", fmt.Sprintf(`{"user":%q}`, user))
	}
}

// endCall has a party of each call end it.
func (w twins) endCall(t *testing.T, c twinCall, left, hidden string) {
	t.Helper()
	for i, user := range []string{left, hidden} {
		r := w.do(t, i, "POST", c[i]+"/end", fmt.Sprintf(`{"user":%q}`, user))
		require.Equal(t, string(lastseen.Ended), decoded(t, r.body)["state"])
	}
}

// compareCallOf compares what readers, also a party, get about a call.
func (f *twinFollowers) compareCallOf(t *testing.T, c twinCall, party string) {
	t.Helper()
	for _, reader := range f.readers(t) {
		credentials := [2]string{reader.left, reader.hidden}
		scripts := f.scripts(f.servers[len(f.servers)-1])
		for i, s := range scripts {
			s.ask(t, credentials[i], http.MethodGet, strings.TrimPrefix(c[i], "/v1/namespaces/"+s.own), "")
			s.ask(t, credentials[i], http.MethodGet, "/calls?user="+party, "")
		}
		sameSeen(t, party, scripts)
	}
}

// compareBusy checks that users are busy for others, in both namespaces.
func (w twins) compareBusy(t *testing.T, users ...string) {
	t.Helper()
	for _, user := range users {
		scripts := w.scripts(w.servers[0])
		for _, s := range scripts {
			require.Empty(t, s.start(t, "ls_all", fmt.Sprintf(`{"from":"zelda","to":%q}`, user)))
		}
		sameSeen(t, user, scripts)
	}
}
