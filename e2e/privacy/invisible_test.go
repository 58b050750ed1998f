package privacy

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestInvisibleEqualsLeft compares all that others can learn about users who left, and about users who became invisible
// at the same times and go on: see [pair]. It does so where everyone sees everyone, and where users are visible to
// their contacts, for a contact and for a stranger.
func TestInvisibleEqualsLeft(t *testing.T) {
	t.Parallel()
	for name, namespace := range map[string]string{"everyone": hall, "contacts": room} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPair(t, namespace, func(t *testing.T, w *pair) {
				w.seed(t)
				w.hideEarlier(t, "frank", 50*time.Hour)
				w.follow(t)
				w.check(t, "before", 0)
				w.hide(t, "davey", "")
				at := w.hide(t, "erica", "")
				w.check(t, "at once", 2)
				w.hideWhileSaying(t)
				w.goOnHidden(t, at)
				w.comeBack(t, at)
				w.compareBlind(t)
				w.checkTyping(t)
			})
		})
	}
}

// hideWhileSaying makes alice invisible while she sets an availability that has an end, and waits for that end.
func (w *pair) hideWhileSaying(t *testing.T) {
	t.Helper()
	for d := 2 * time.Second; ; d *= 2 {
		until := time.Now().Add(d)
		w.both(t, "PUT", "/users/alice/availability", fmt.Sprintf(
			`{"availability":"away","note":"lunch","until":%q}`, exact(until)))
		said := w.flush(t, "something with an end", 0)
		w.hide(t, "alice", "")
		hidden := w.flush(t, "invisible before that end", 0)
		if time.Now().Before(until) {
			for gone := range w.observations {
				for _, sent := range [][2][]string{said[gone], hidden[gone]} {
					require.Equal(t, sent[0], sent[1], gone.way)
					require.Equal(t, strings.HasPrefix(gone.way, stranger), len(sent[1]) == 0, gone.way)
				}
			}
			w.await(t, until)
			w.check(t, "after the end of what was said", 1)
			return
		}
		// It ended before all of it arrived: again, with more time for a slow machine.
		w.both(t, "DELETE", "/users/alice/availability", "")
		w.both(t, "POST", "/users/alice/ping", fmt.Sprintf(`{"at":%q}`, exact(time.Now())))
		w.flush(t, "again", 0)
	}
}

// goOnHidden has the invisible users go on in all ways: by requests, connections and late pings.
func (w *pair) goOnHidden(t *testing.T, at lastseen.Instant) {
	t.Helper()
	counted := w.gone.namespace != room // there, no reader gets counts
	if counted {
		w.checkCounts(t, "before pings", false)
	}
	answered := w.wait(t)
	w.goOn(t, at)
	answered()
	w.check(t, "after pings", 0)
	if counted {
		w.checkCounts(t, "after pings", true)
	}
	leave := w.connectHidden(t)
	w.check(t, "while connected", 0)
	leave()
	require.Equal(t, 1, w.trim(t, 30*time.Hour), "frank")
	require.Equal(t, "invisible", w.availabilityOf(t, "frank"))
	w.goOn(t, at)
	w.check(t, "after the connection and retention", 0)

	until := time.Now().Add(time.Second)
	w.hiding.do(t, 0, "PUT", "/users/alice/availability",
		fmt.Sprintf(`{"availability":"invisible","until":%q}`, exact(until)))
	w.await(t, until)
	w.ping(t, "alice", at+1)
	w.check(t, "after late pings of a hidden time that ended", 0)
}

// comeBack ends the hidden times: by the user, and by deletion. What is recorded then is seen.
func (w *pair) comeBack(t *testing.T, at lastseen.Instant) {
	t.Helper()
	w.both(t, "PUT", "/users/davey/availability", `{"note":"back"}`)
	w.ping(t, "davey", at+1)
	w.check(t, "after going visible, and late pings", 1)
	w.both(t, "DELETE", "/users/erica/availability", "")
	w.both(t, "DELETE", "/users/alice", "")
	w.check(t, "after forget", 1)
	w.befriend(t, "alice")
	for _, user := range pairUsers {
		w.both(t, "POST", "/users/"+user+"/ping", fmt.Sprintf(`{"at":%q}`, exact(time.Now())))
	}
	w.check(t, "after a ping that counts", 3)
}

// TestInvisibleAloneEqualsLeft compares namespaces that have this user alone, and are removed.
func TestInvisibleAloneEqualsLeft(t *testing.T) {
	t.Parallel()
	testPair(t, yard, func(t *testing.T, w *pair) {
		w.both(t, "POST", "/users/alice/ping", fmt.Sprintf(`{"at":%q,"device":{"id":"tab"}}`, w.ago(time.Hour)))
		at := w.hide(t, "alice", `,"note":"x"`)
		w.compare(t, "at once")
		w.goOn(t, at)
		w.compare(t, "after pings")
		w.trimAll(t)
		w.compare(t, "after retention")
		for _, s := range []site{w.gone, w.hiding} {
			removed, err := s.store.RemoveEmpty(t.Context(), s.name())
			require.NoError(t, err)
			require.True(t, removed)
		}
		w.goOn(t, at)
		w.connectHidden(t)()
		w.compare(t, "after pings without the namespace")
		w.both(t, "DELETE", "/users/alice", "")
		w.both(t, "POST", "/users/alice/ping", fmt.Sprintf(`{"at":%q}`, exact(time.Now())))
		w.compare(t, "after a ping that counts")
	})
}

// seed records the same users in both sites.
func (w *pair) seed(t testing.TB) {
	t.Helper()
	w.both(t, "POST", "/pings", fmt.Sprintf(
		`{"pings":[{"user":"bobby","at":%q},{"user":"carla","at":%q},{"user":"frank","at":%q}]}`,
		w.ago(time.Minute), w.ago(15*time.Hour), w.ago(60*time.Hour)))
	w.both(t, "POST", "/users/alice/ping",
		fmt.Sprintf(`{"at":%q,"device":{"id":"tab","kind":"web"}}`, w.ago(30*time.Second)))
	w.both(t, "POST", "/users/davey/ping",
		fmt.Sprintf(`{"at":%q,"device":{"id":"app","kind":"mobile"},"activity":"idle"}`, w.ago(40*time.Second)))
	w.both(t, "PUT", "/users/davey/availability", `{"availability":"busy","note":"writing"}`)
	w.both(t, "PUT", "/users/bobby/availability", `{"availability":"busy"}`)
	// In a room, bobby and the others see each other. The stranger sees the marker alone.
	for user, contacts := range map[string]string{
		"bobby":  `"alice","carla","davey","erica","frank","marker"`,
		stranger: `"alice","carla","davey","erica","frank","marker"`,
		"carla":  `"bobby"`,
		"frank":  `"bobby"`,
		"marker": fmt.Sprintf(`"bobby",%q`, stranger),
	} {
		w.both(t, "PUT", "/users/"+user+"/contacts", `{"users":[`+contacts+`]}`)
	}
	w.befriend(t, pairUsers...)
}

// befriend lets users be seen by bobby.
func (w *pair) befriend(t testing.TB, users ...string) {
	t.Helper()
	for _, user := range users {
		w.both(t, "PUT", "/users/"+user+"/contacts", `{"users":["bobby"]}`)
	}
}

// hideEarlier makes a user invisible some time ago, so that retention deletes the user. Only stores can do that. In the
// other site, the user leaves at the same time.
func (w *pair) hideEarlier(t *testing.T, user string, ago time.Duration) {
	t.Helper()
	availability := lastseen.AvailabilityState{Availability: lastseen.Invisible}
	at := lastseen.InstantOf(w.begun.Add(-ago))
	state, err := w.hiding.store.SetAvailability(t.Context(), w.hiding.name(), user, availability, at)
	require.NoError(t, err)
	require.True(t, state.Left)
	w.gone.do(t, 0, "POST", "/users/"+user+"/leave", fmt.Sprintf(`{"at":%q}`, state.At.String()))
}

// hide makes a user invisible, with more fields of the request. In the other site, the user leaves at the same time,
// which it returns.
func (w *pair) hide(t testing.TB, user, fields string) lastseen.Instant {
	t.Helper()
	w.hiding.do(t, 0, "PUT", "/users/"+user+"/availability", `{"availability":"invisible"`+fields+`}`)
	states, _, err := w.hiding.store.Describe(t.Context(), w.hiding.name(), []string{user})
	require.NoError(t, err)
	require.True(t, states[0].Left)
	w.gone.do(t, 0, "POST", "/users/"+user+"/leave", fmt.Sprintf(`{"at":%q}`, states[0].At.String()))
	return states[0].At
}

// await waits until a moment has passed for both stores.
func (w *pair) await(t *testing.T, until time.Time) {
	t.Helper()
	for _, s := range []site{w.gone, w.hiding} {
		require.Eventually(t, func() bool {
			now, err := s.store.Now(t.Context())
			return err == nil && now > lastseen.InstantOf(until)
		}, testWait, 10*time.Millisecond, "the end %s", until)
	}
}

// saidBy returns the availability of a user who may be invisible, as the user sees it.
func (w *pair) availabilityOf(t *testing.T, user string) any {
	t.Helper()
	return decoded(t, w.hiding.do(t, 0, "GET", "/users/"+user+"/availability", "").body)["availability"]
}

// goOn has the devices of the invisible users assert all that they can.
func (w *pair) goOn(t *testing.T, hiddenAt lastseen.Instant) {
	t.Helper()
	for i, user := range append(slices.Clone(pairUsers), "frank") {
		if w.availabilityOf(t, user) != "invisible" {
			continue
		}
		w.hiding.play(t, strings.NewReplacer("USER", user, "ONE", fmt.Sprint(i), "TWO", fmt.Sprint(i+1),
			"EARLY", (hiddenAt-1000).String(), "LATE", (hiddenAt+1).String()).Replace(`
			ONE POST /users/USER/ping
			TWO POST /users/USER/ping {"device":{"id":"tab","kind":"web"},"activity":"idle"}
			ONE POST /users/USER/ping {"device":{"id":"new","kind":"desktop"}}
			ONE POST /users/USER/leave {"device":{"id":"new"},"after":"100ms"}
			TWO POST /users/USER/leave {"device":{"id":"tab"}}
			ONE POST /users/USER/leave
			ONE POST /pings {"pings":[{"user":"USER","at":"EARLY"},{"user":"USER","at":"EARLY","device":{"id":"tab"}}]}
			ONE POST /pings {"pings":[{"user":"USER","at":"LATE"},{"user":"USER","at":"LATE","device":{"id":"tab"}}]}
			ONE POST /leaves {"leaves":[{"user":"USER","at":"EARLY"}]}
			ONE POST /leaves {"leaves":[{"user":"USER","at":"LATE"}]}`))
	}
}

// ping has a user's devices assert that they were used at some time.
func (w *pair) ping(t *testing.T, user string, at lastseen.Instant) {
	t.Helper()
	w.hiding.play(t, strings.NewReplacer("USER", user, "LATE", at.String()).Replace(`
		0 POST /users/USER/ping {"at":"LATE"}
		1 POST /users/USER/ping {"at":"LATE","device":{"id":"late"}}
		1 POST /users/USER/leave {"at":"LATE","device":{"id":"tab"}}
		0 POST /pings {"pings":[{"user":"USER","at":"LATE"}]}`))
}

// connectHidden opens connections of an invisible user to all servers, and uses them. They answer the pings of the
// server until they are closed. It returns how to do that.
func (w *pair) connectHidden(t *testing.T) (leave func()) {
	t.Helper()
	var sockets []*clientSocket
	for i := range w.hiding.servers {
		socket := w.hiding.connect(t, i, "alice", fmt.Sprintf(`,"device":{"id":"socket-%d","kind":"web"}`, i))
		sockets = append(sockets, socket)
		socket.ask(t, `{"activity":{"idle":true},"id":1}`, "ok")
		socket.ask(t, `{"typing":{"to":["bobby"]},"id":2}`, "ok")
		socket.ask(t, `{"watch":{"add":["alice","bobby"]},"id":3}`, "changes")
	}
	return func() {
		sockets[0].ask(t, `{"leave":{},"id":4}`, "ok")
		for _, socket := range sockets[1:] { // the server has ended the first one
			socket.hangUp(t)
		}
	}
}

// trimAll waits until the only user of both namespaces is deleted by the shortest retention. With a feed, that is not
// before the watermark has passed the time at which the user turns grey.
func (w *pair) trimAll(t *testing.T) {
	t.Helper()
	for _, s := range []site{w.gone, w.hiding} {
		require.Eventually(t, func() bool { return s.trim(t, 2100*time.Millisecond) == 1 }, testWait,
			50*time.Millisecond, "no user was deleted")
	}
}

// trim deletes what is older than an age from both sites, and returns how many users that were.
func (w *pair) trim(t *testing.T, age time.Duration) (deleted int) {
	t.Helper()
	deleted = w.hiding.trim(t, age)
	require.Equal(t, w.gone.trim(t, age), deleted)
	return deleted
}

func (s site) trim(t *testing.T, age time.Duration) (deleted int) {
	t.Helper()
	now, err := s.store.Now(t.Context())
	require.NoError(t, err)
	result, err := s.store.Trim(context.Background(), s.name(), store.TrimQuery{Age: age, Now: now, All: true})
	require.NoError(t, err)
	return result.Deleted
}

// compareBlind compares the responses to writes of a caller who may write, but not read.
func (w *pair) compareBlind(t *testing.T) {
	t.Helper()
	w.hide(t, "alice", `,"note":"x"`)
	for _, request := range [][2]string{
		{"/users/alice/ping", ""},
		{"/users/alice/ping", `{"device":{"id":"tab"}}`},
		{"/users/alice/leave", `{"device":{"id":"tab"},"after":"100ms"}`},
		{"/users/alice/leave", ""},
		{"/pings", `{"pings":[{"user":"alice"},{"user":"bobby","device":{"id":"tab"}}]}`},
		{"/leaves", `{"leaves":[{"user":"alice"}]}`},
	} {
		w.same(t, "blind "+request[0], func(s site) response {
			r := s.send(t, 0, http.MethodPost, request[0], request[1], "ls_writer")
			require.Less(t, r.status, 300, r.body)
			return s.masked(r, false)
		})
	}
	require.Equal(t, "invisible", w.availabilityOf(t, "alice"))
}

// checkTyping checks that typing of an invisible user reaches no one.
func (w *pair) checkTyping(t *testing.T) {
	t.Helper()
	bobby := w.hiding.connect(t, 0, "bobby", "")
	for _, user := range []string{"alice", "carla"} {
		w.hiding.connect(t, 1, user, "").ask(t, `{"typing":{"to":["bobby"]},"id":1}`, "ok")
	}
	require.Contains(t, bobby.await(t, "typing"), `"user":"carla"`, "the first")
}
