package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestInvisibleEqualsLeft compares all that others can learn about users who left, and about users who became invisible
// at the same times and go on: see [twins].
func TestInvisibleEqualsLeft(t *testing.T) {
	t.Parallel()
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		w := newTwins(0, servers, s)
		begun := time.Now()
		w.seed(t, begun)
		w.hideEarlier(t, "frank", begun.Add(-50*time.Minute))
		f := w.begin(t, begun)
		check := func(phase string, changes int) {
			t.Helper()
			f.check(t, phase, changes)
		}
		check("before", 0)
		// What is said has to last for some phases, however slow the machine is.
		phase := time.Since(begun) + time.Second
		untilSaid, hiddenFor := time.Now().Add(6*phase), 9*phase
		w.both(t, "PUT", "/users/alice/availability", fmt.Sprintf(
			`{"availability":"away","note":"lunch","until":%q}`, exact(untilSaid)))
		check("with an end", 1)

		at := w.hide(t, twinUsers, fmt.Sprintf(`"for":"%dms"`, hiddenFor.Milliseconds()))
		untilHidden := time.Now().Add(hiddenFor)
		check("at once", 2) // the leave of a user never seen is no change
		answered := w.wait(t)
		w.goOn(t, at)
		answered()
		check("after pings", 0)
		leave := w.connectHidden(t)
		check("while connected", 0)
		leave()
		w.goOn(t, at)
		check("after the connection", 0)
		require.Equal(t, 1, w.trim(t, 30*time.Minute), "frank")
		w.requireInvisible(t, "frank")
		w.goOn(t, at)
		check("after retention", 0)

		require.Less(t, time.Now(), untilSaid, "the phases took too long")
		time.Sleep(time.Until(untilSaid.Add(time.Second)))
		check("after the end of what was said", 1)
		require.Less(t, time.Now(), untilHidden, "the phases took too long")
		time.Sleep(time.Until(untilHidden.Add(10 * time.Millisecond)))
		check("after until", 0)
		w.ping(t, "alice", at+1)
		check("after late pings of a hidden time that ended", 0)

		w.both(t, "PUT", "/users/davey/availability", `{"note":"back"}`)
		check("after going visible", 1)
		w.ping(t, "davey", at+1)
		check("after late pings of a hidden time that the user ended", 0)
		for _, user := range []string{"alice", "erica"} {
			w.both(t, "DELETE", "/users/"+user, "")
		}
		check("after forget", 2)
		present := fmt.Sprintf(`{"at":%q}`, exact(time.Now()))
		for _, user := range twinUsers {
			w.both(t, "POST", "/users/"+user+"/ping", present)
		}
		check("after a ping that counts", 3)
		w.compareBlind(t)
		w.checkTyping(t)
	})
}

// TestInvisibleAloneEqualsLeft does the same in namespaces that have this user alone, and are removed.
func TestInvisibleAloneEqualsLeft(t *testing.T) {
	t.Parallel()
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		w := newTwins(1, servers, s)
		w.open = true
		old := exact(time.Now().Add(-time.Hour))
		w.both(t, "POST", "/users/alice/ping", fmt.Sprintf(`{"at":%q,"device":{"id":"tab"}}`, old))
		w.compare(t, "before")
		at := w.hide(t, []string{"alice"}, `"note":"x"`)
		w.compare(t, "at once")
		w.goOn(t, at)
		w.compare(t, "after pings")
		w.trimAll(t)
		w.compare(t, "after retention")
		for _, namespace := range []string{w.left, w.hidden} {
			removed, err := s.RemoveEmpty(t.Context(), namespace)
			require.NoError(t, err)
			require.True(t, removed, namespace)
		}
		w.compare(t, "without the namespace")
		w.goOn(t, at)
		w.connectHidden(t)()
		w.compare(t, "after pings without the namespace")
		w.both(t, "DELETE", "/users/alice", "")
		w.compare(t, "after forget")
		w.both(t, "POST", "/users/alice/ping", fmt.Sprintf(`{"at":%q}`, exact(time.Now())))
		w.compare(t, "after a ping that counts")
	})
}

// TestInvisibleToContactsEqualsLeft does the same where users are visible to their contacts. It compares what a contact
// and a stranger learn, and retention deletes users who are invisible.
func TestInvisibleToContactsEqualsLeft(t *testing.T) {
	t.Parallel()
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		w := newTwins(2, servers, s)
		w.toContacts = true
		begun := time.Now()
		w.seed(t, begun)
		w.seedContacts(t)
		w.hideEarlier(t, "frank", begun.Add(-50*time.Minute))
		f := w.begin(t, begun)
		check := func(phase string, changes int) {
			t.Helper()
			f.check(t, phase, changes)
		}
		check("before", 0)
		w.hideEarlier(t, "erica", begun.Add(-40*time.Minute))
		at := w.hide(t, []string{"alice", "davey"}, "")
		check("at once", 2) // the leave of a user never seen is no change
		w.goOn(t, at)
		leave := w.connectHidden(t)
		check("while connected", 0)
		leave()
		require.Equal(t, 2, w.trim(t, 30*time.Minute), "erica and frank")
		w.requireInvisible(t, "erica", "frank")
		w.goOn(t, at)
		check("after retention", 0)
		w.checkCallers(t)
		for _, user := range twinUsers {
			w.compareCalls(t, "contact", user, user)
		}

		untilHidden := time.Now().Add(time.Second)
		w.do(t, 0, "PUT", "/v1/namespaces/"+w.hidden+"/users/alice/availability",
			fmt.Sprintf(`{"availability":"invisible","until":%q}`, exact(untilHidden)))
		time.Sleep(time.Until(untilHidden.Add(10 * time.Millisecond)))
		w.ping(t, "alice", at+1)
		check("after until", 0)
		w.both(t, "PUT", "/users/davey/availability", `{"note":"back"}`)
		w.ping(t, "davey", at+1)
		check("after going visible", 1)
		for _, user := range []string{"alice", "erica"} {
			w.both(t, "DELETE", "/users/"+user, "")
		}
		check("after forget", 1) // retention deleted Erica before
		w.befriend(t, "alice", "erica")
		present := fmt.Sprintf(`{"at":%q}`, exact(time.Now()))
		for _, user := range twinUsers {
			w.both(t, "POST", "/users/"+user+"/ping", present)
		}
		check("after a ping that counts", 3)
	})
}

// seed records the same users in both namespaces.
func (w twins) seed(t *testing.T, now time.Time) {
	t.Helper()
	ago := func(d time.Duration) string { return exact(now.Add(-d)) }
	w.both(t, "POST", "/pings", fmt.Sprintf(
		`{"pings":[{"user":"bobby","at":%q},{"user":"carla","at":%q},{"user":"frank","at":%q},{"user":"marker","at":%q}]}`,
		ago(time.Minute), ago(15*time.Minute), ago(time.Hour), ago(2*time.Minute)))
	w.both(t, "POST", "/users/alice/ping",
		fmt.Sprintf(`{"at":%q,"device":{"id":"tab","kind":"web"}}`, ago(30*time.Second)))
	w.both(t, "POST", "/users/davey/ping",
		fmt.Sprintf(`{"at":%q,"device":{"id":"app","kind":"mobile"},"activity":"idle"}`, ago(40*time.Second)))
	w.both(t, "PUT", "/users/davey/availability", `{"availability":"busy","note":"writing"}`)
	w.both(t, "PUT", "/users/bobby/availability", `{"availability":"busy"}`)
	w.both(t, "PUT", "/users/bobby/contacts", `{"users":["alice","davey","erica","carla"]}`)
}

// seedContacts makes bobby and the others contacts of each other. The stranger can see the marker alone.
func (w twins) seedContacts(t *testing.T) {
	t.Helper()
	for user, contacts := range map[string]string{
		"bobby":  `"alice","carla","davey","erica","frank","marker"`,
		stranger: `"alice","carla","davey","erica","frank","marker"`,
		"carla":  `"bobby"`,
		"frank":  `"bobby"`,
		"marker": fmt.Sprintf(`"bobby",%q`, stranger),
	} {
		w.both(t, "PUT", "/users/"+user+"/contacts", `{"users":[`+contacts+`]}`)
	}
	w.befriend(t, twinUsers...)
}

// befriend lets users be seen by bobby and by the callers of compareCalls that are called contact.
func (w twins) befriend(t *testing.T, users ...string) {
	t.Helper()
	for _, user := range users {
		contacts := `"bobby"`
		for i := range w.servers {
			caller := fmt.Sprintf("contact%d as %s by token", i, user)
			contacts += fmt.Sprintf(`,%q,%q`, caller, caller+" at the same time")
		}
		w.both(t, "PUT", "/users/"+user+"/contacts", `{"users":[`+contacts+`]}`)
	}
}

// checkCallers checks that contacts can call those who left, and that strangers cannot.
func (w twins) checkCallers(t *testing.T) {
	t.Helper()
	for _, s := range w.scripts(w.servers[0]) {
		for caller, can := range map[string]bool{"contact0 as alice by token": true, stranger: false} {
			credential := bearerOf(t, caller, s.own)
			path := s.start(t, credential, fmt.Sprintf(`{"from":%q,"to":"alice"}`, caller))
			require.Equal(t, can, path != "", caller)
			s.end(t, credential, path, caller)
		}
	}
}

// hideEarlier makes a user invisible at a time in the past, so that retention deletes the user. Only stores can do
// that. In the other namespace, the user leaves at the same time.
func (w twins) hideEarlier(t *testing.T, user string, at time.Time) {
	t.Helper()
	said := lastseen.Said{Availability: lastseen.Invisible}
	state, err := w.store.SetAvailability(t.Context(), w.hidden, user, said, lastseen.InstantOf(at))
	require.NoError(t, err)
	require.True(t, state.Left)
	w.do(t, 0, "POST", "/v1/namespaces/"+w.left+"/users/"+user+"/leave", fmt.Sprintf(`{"at":%q}`, state.At.String()))
}

// hide makes users invisible: the first one with fields that say until when, the others without an end. In the other
// namespace, they leave at the same times. It returns the time of the first.
func (w twins) hide(t *testing.T, users []string, fields string) lastseen.Instant {
	t.Helper()
	var first lastseen.Instant
	for _, user := range users {
		w.do(t, 0, "PUT", "/v1/namespaces/"+w.hidden+"/users/"+user+"/availability",
			strings.ReplaceAll(`{"availability":"invisible",`+fields+`}`, `,}`, `}`))
		states, err := w.store.Lookup(t.Context(), w.hidden, []string{user})
		require.NoError(t, err)
		require.True(t, states[0].Left)
		w.do(t, 0, "POST", "/v1/namespaces/"+w.left+"/users/"+user+"/leave",
			fmt.Sprintf(`{"at":%q}`, states[0].At.String()))
		if first == 0 {
			first, fields = states[0].At, ""
		}
	}
	return first
}

// requireInvisible fails the test if users are not invisible, as they see it themselves. Then goOn would do nothing.
func (w twins) requireInvisible(t *testing.T, users ...string) {
	t.Helper()
	for _, user := range users {
		r := w.do(t, 0, "GET", "/v1/namespaces/"+w.hidden+"/users/"+user+"/availability", "")
		require.Equal(t, "invisible", decoded(t, r.body)["availability"], user)
	}
}

// goOn has the devices of the invisible users assert all that they can.
func (w twins) goOn(t *testing.T, hiddenAt lastseen.Instant) {
	t.Helper()
	for i, user := range append(slices.Clone(twinUsers), "frank") {
		path := "/v1/namespaces/" + w.hidden + "/users/" + user
		if r := w.do(t, i, "GET", path+"/availability", ""); !strings.Contains(r.body, "invisible") {
			continue
		}
		w.do(t, i, "POST", path+"/ping", "")
		w.do(t, i+1, "POST", path+"/ping", `{"device":{"id":"tab","kind":"web"},"activity":"idle"}`)
		w.do(t, i, "POST", path+"/ping", `{"device":{"id":"new","kind":"desktop"}}`)
		w.do(t, i, "POST", path+"/leave", `{"device":{"id":"new"},"after":"100ms"}`)
		w.do(t, i+1, "POST", path+"/leave", `{"device":{"id":"tab"}}`)
		w.do(t, i, "POST", path+"/leave", "")
		for _, at := range []lastseen.Instant{hiddenAt - 1000, hiddenAt + 1} {
			item := fmt.Sprintf(`{"user":%q,"at":%q}`, user, at.String())
			device := fmt.Sprintf(`{"user":%q,"at":%q,"device":{"id":"tab"}}`, user, at.String())
			w.do(t, i, "POST", "/v1/namespaces/"+w.hidden+"/pings", `{"pings":[`+item+`,`+device+`]}`)
			w.do(t, i, "POST", "/v1/namespaces/"+w.hidden+"/leaves", `{"leaves":[`+item+`]}`)
		}
	}
}

// ping has a user's devices assert that they were used at some time.
func (w twins) ping(t *testing.T, user string, at lastseen.Instant) {
	t.Helper()
	path, time := "/v1/namespaces/"+w.hidden, at.String()
	w.do(t, 0, "POST", path+"/users/"+user+"/ping", fmt.Sprintf(`{"at":%q}`, time))
	w.do(t, 1, "POST", path+"/users/"+user+"/ping", fmt.Sprintf(`{"at":%q,"device":{"id":"late"}}`, time))
	w.do(t, 1, "POST", path+"/users/"+user+"/leave", fmt.Sprintf(`{"at":%q,"device":{"id":"tab"}}`, time))
	w.do(t, 0, "POST", path+"/pings", fmt.Sprintf(`{"pings":[{"user":%q,"at":%q}]}`, user, time))
}

// connectHidden opens connections of an invisible user to all servers, and uses them. They answer the pings of the
// server until they are closed. It returns how to do that.
func (w twins) connectHidden(t *testing.T) (leave func()) {
	t.Helper()
	var sockets []*twinSocket
	for i := range w.servers {
		socket := w.connect(t, i, "alice", fmt.Sprintf(`"device":{"id":"socket-%d","kind":"web"}`, i))
		sockets = append(sockets, socket)
		socket.ask(t, `{"activity":{"idle":true},"id":1}`, "ok")
		socket.ask(t, `{"typing":{"to":["bobby"]},"id":2}`, "ok")
		socket.ask(t, `{"watch":{"add":["alice","bobby"]},"id":3}`, "changes")
	}
	return func() {
		sockets[0].ask(t, `{"leave":{},"id":4}`, "ok")
		for _, socket := range sockets {
			_ = socket.Close(websocket.StatusNormalClosure, "")
		}
	}
}

// trimAll waits until the only user of both namespaces is deleted by the shortest retention. With a feed, that is not
// before a sweep has published the user as grey by age.
func (w twins) trimAll(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{w.left, w.hidden} {
		require.Eventually(t, func() bool {
			now, err := w.store.Now(t.Context())
			if err != nil {
				return false
			}
			result, err := w.store.Trim(t.Context(), namespace,
				store.TrimQuery{Age: 2100 * time.Millisecond, Now: now, All: true})
			return err == nil && result.Deleted == 1
		}, time.Minute, 50*time.Millisecond, namespace)
	}
}

// trim deletes what is older than an age from both namespaces, and returns how many users that were.
func (w twins) trim(t *testing.T, age time.Duration) (deleted int) {
	t.Helper()
	results := map[string]store.TrimResult{}
	for _, namespace := range []string{w.left, w.hidden} {
		now, err := w.store.Now(t.Context())
		require.NoError(t, err)
		results[namespace], err = w.store.Trim(context.Background(), namespace,
			store.TrimQuery{Age: age, Now: now, All: true})
		require.NoError(t, err)
	}
	require.Equal(t, results[w.left], results[w.hidden])
	return results[w.left].Deleted
}
