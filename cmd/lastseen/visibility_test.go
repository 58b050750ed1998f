package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// The users of both worlds. To bobby, alice, davey and erica are strangers: see [twinUsers]. He has them among his
// contacts, but they do not have him. Carla, frank, hank and marker are contacts of his who have him, and grace has him
// although he does not have her. Marker is a contact of zelda, too. Young has no contacts.
const bobbyContacts = `{"users":["alice","carla","davey","erica","frank","hank","marker","young","zelda"]}`

// strangersTest compares a quiet world, in which the strangers do nothing, with a busy one.
type strangersTest struct {
	quiet, busy world
	begun       time.Time
	sights      map[*sight]*sight // what the same client is told in the quiet world, and in the busy one
	places      map[string]string // the cursors of earlier polls, by what was asked
	marks       int
}

// TestVisibilityHidesStrangers compares all that users can learn in two worlds that differ in what strangers do: users
// who do not have them among their contacts.
func TestVisibilityHidesStrangers(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "so many requests take minutes")
	eachWorlds(t, 2, func(t *testing.T, worlds []world) {
		v := &strangersTest{
			quiet: worlds[0], busy: worlds[1], begun: time.Now(),
			sights: map[*sight]*sight{}, places: map[string]string{},
		}
		v.seed(t)
		v.follow(t)
		v.check(t, "before", 1)
		v.strangersPing(t)
		v.check(t, "after strangers came", 1)
		v.checkWorldsDiffer(t)
		answered := v.wait(t)
		v.strangersSpeak(t)
		v.strangersKnow(t)
		answered()
		v.check(t, "after strangers said something", 1)
		leave := v.strangersConnect(t)
		v.check(t, "while strangers are connected", 1)
		leave()
		v.checkNewest(t)
		v.check(t, "after strangers left", 1)
		v.strangersAreDeleted(t)
		v.check(t, "after strangers were deleted", 1)

		both := []world{v.quiet, v.busy}
		doAll(t, both, "PATCH", room+"/users/bobby/contacts", `{"remove":["alice","davey"],"add":["xenia"]}`)
		v.check(t, "after a change of one's own contacts", 1)
		doAll(t, both, "PUT", room+"/users/bobby/contacts", bobbyContacts)
		v.strangersPing(t)
		v.check(t, "after changing them back", 1)

		v.friendGoes(t)
		v.check(t, "after a contact became a stranger", 2)
		v.strangerGoesOn(t)
		v.check(t, "after that one went on", 1)
		v.friendReturns(t)
		v.check(t, "after that one returned", 2)
		v.strangersPing(t)
		v.checkTicks(t)
	})
}

// checkTicks waits until all clients got a tick, whose cursors were compared with those of the batches before.
func (v *strangersTest) checkTicks(t *testing.T) {
	t.Helper()
	for quiet, busy := range v.sights {
		for _, s := range []*sight{quiet, busy} {
			require.Eventually(t, func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.ticks > 0
			}, worldWait, 50*time.Millisecond, "%s: a tick", s.way)
			s.check(t)
		}
	}
}

// seed records the same users in both worlds.
func (v *strangersTest) seed(t *testing.T) {
	t.Helper()
	both := []world{v.quiet, v.busy}
	ago := func(d time.Duration) string { return exact(v.begun.Add(-d)) }
	var pings []string
	for user, age := range map[string]time.Duration{
		"carla": 15 * time.Minute, "frank": 15 * time.Hour, "grace": 2 * time.Minute, "hank": 3 * time.Minute,
		"zelda": 4 * time.Minute,
	} {
		pings = append(pings, fmt.Sprintf(`{"user":%q,"at":%q}`, user, ago(age)))
	}
	doAll(t, both, "POST", room+"/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
	doAll(t, both, "POST", room+"/users/bobby/ping",
		fmt.Sprintf(`{"at":%q,"device":{"id":"tab","kind":"web"}}`, ago(time.Minute)))
	doAll(t, both, "POST", room+"/users/frank/leave", fmt.Sprintf(`{"at":%q}`, ago(14*time.Hour)))
	doAll(t, both, "PUT", room+"/users/bobby/contacts", bobbyContacts)
	doAll(t, both, "PUT", room+"/users/zelda/contacts", `{"users":["alice","marker"]}`)
	for _, user := range []string{"carla", "frank", "grace", "hank", "marker"} {
		contacts := map[string]string{"marker": `{"users":["bobby","zelda"]}`}[user]
		if contacts == "" {
			contacts = `{"users":["bobby"]}`
		}
		doAll(t, both, "PUT", room+"/users/"+user+"/contacts", contacts)
	}
}

// follow begins to follow changes in both worlds, on all servers, as bobby and zelda.
func (v *strangersTest) follow(t *testing.T) {
	t.Helper()
	some := sightQuery{"some users", []string{"alice", "bobby", "davey", "erica", "grace", "hank", "marker"}}
	for i, server := range v.quiet.servers {
		for _, user := range []string{"bobby", "zelda"} {
			asked := []sightQuery{some, {name: "everyone"}}
			quiet := openStreams(t, server, roomToken(t, user), asked...)
			for j, busy := range openStreams(t, v.busy.servers[i], roomToken(t, user), asked...) {
				busy.way = user + " follows " + busy.way
				quiet[j].way = busy.way
				require.Equal(t, quiet[j].begin(), busy.begin(), busy.way)
				v.sights[quiet[j]] = busy
			}
		}
	}
}

// check compares the worlds. Since the last check, streams of bobby were told of n users, one of which is the marker.
func (v *strangersTest) check(t *testing.T, phase string, n int) {
	t.Helper()
	v.marks++
	mark := exact(v.begun.Add(time.Duration(v.marks-10_000) * time.Millisecond))
	event := map[int]string{0: "leave", 1: "ping"}[v.marks%2]
	doAll(t, []world{v.quiet, v.busy}, "POST", room+"/users/marker/"+event, fmt.Sprintf(`{"at":%q}`, mark))
	for quiet, busy := range v.sights {
		expected := n
		if strings.HasPrefix(quiet.way, "zelda") {
			expected = 1
		}
		want, cursor := quiet.flush(t, mark, expected)
		got, other := busy.flush(t, mark, expected)
		require.Equal(t, want, got, "%s: %s", phase, busy.way)
		require.Len(t, got, expected, "%s: %s: %q", phase, busy.way, got)
		require.Equal(t, cursor, other, "%s: %s", phase, busy.way)
	}
	v.compare(t, phase)
}

// checkWorldsDiffer checks that the worlds do differ, and that bobby sees his friends in both: otherwise the test
// compares nothing.
func (v *strangersTest) checkWorldsDiffer(t *testing.T) {
	t.Helper()
	for _, w := range []world{v.quiet, v.busy} {
		for i := range w.servers {
			require.Equal(t, "marker hank carla frank", w.listedTo(t, i, roomToken(t, "bobby")))
			require.Equal(t, "green", w.shownTo(t, i, roomToken(t, "bobby"), "grace"), "she has bobby")
			require.Equal(t, "green", w.shownTo(t, i, roomToken(t, "bobby"), "bobby"), "he sees himself")
			require.Equal(t, "never seen", w.shownTo(t, i, roomToken(t, "bobby"), "alice"), "she does not have bobby")
			require.Equal(t, "never seen", w.shownTo(t, i, roomToken(t, "bobby"), "zelda"), "the same")
			require.Equal(t, "marker", w.listedTo(t, i, roomToken(t, "zelda")))
			require.Empty(t, w.listedTo(t, i, roomToken(t, "young")))
		}
	}
	require.Equal(t, "never seen", v.quiet.shownTo(t, 0, "ls_reader", "alice"))
	require.Equal(t, "green", v.busy.shownTo(t, 0, "ls_reader", "alice"))
	require.NotContains(t, v.quiet.listedTo(t, 0, "ls_reader"), "davey")
	require.Contains(t, v.busy.listedTo(t, 0, "ls_reader"), "davey")
}

// strangersPing lets strangers come and leave.
func (v *strangersTest) strangersPing(t *testing.T) {
	t.Helper()
	users := room + "/users/"
	v.busy.do(t, 0, "POST", users+"alice/ping", `{"device":{"id":"tab","kind":"web"},"activity":"idle"}`)
	v.busy.do(t, 1, "POST", users+"alice/ping", `{"device":{"id":"app","kind":"mobile"}}`)
	v.busy.do(t, 0, "POST", users+"erica/ping", "")
	v.busy.do(t, 1, "POST", users+"erica/leave", "")
	v.busy.do(t, 1, "POST", room+"/pings", `{"pings":[{"user":"davey"},{"user":"alice"},{"user":"xenia"}]}`)
	v.busy.do(t, 0, "POST", room+"/leaves", `{"leaves":[{"user":"xenia"}]}`)
}

// strangersSpeak lets strangers say something. One becomes invisible.
func (v *strangersTest) strangersSpeak(t *testing.T) {
	t.Helper()
	users := room + "/users/"
	v.busy.do(t, 0, "PUT", users+"alice/availability", `{"availability":"busy","note":"lunch","for":"1h"}`)
	v.busy.do(t, 1, "PUT", users+"erica/availability", `{"availability":"away","for":"100ms"}`)
	v.busy.do(t, 1, "PUT", users+"davey/availability", `{"availability":"invisible"}`)
	v.busy.do(t, 0, "POST", users+"davey/ping", "")
	v.busy.do(t, 0, "PUT", users+"davey/availability", `{"note":"back"}`)
	v.busy.do(t, 1, "DELETE", users+"alice/availability", "")
	v.busy.do(t, 1, "PUT", users+"alice/availability", `{"note":"here"}`)
}

// strangersKnow lets strangers have contacts, but not bobby.
func (v *strangersTest) strangersKnow(t *testing.T) {
	t.Helper()
	users := room + "/users/"
	v.busy.do(t, 0, "PUT", users+"alice/contacts", `{"users":["davey","erica","carla"]}`)
	v.busy.do(t, 1, "PUT", users+"davey/contacts", `{"users":["alice","xenia"]}`)
	v.busy.do(t, 1, "PATCH", users+"alice/contacts", `{"remove":["carla"],"add":["xenia"]}`)
	v.busy.do(t, 0, "DELETE", users+"davey/contacts", "")
}

// strangersConnect lets strangers connect to all servers, follow bobby and type to him. It returns how to end that.
func (v *strangersTest) strangersConnect(t *testing.T) (leave func()) {
	t.Helper()
	var sockets []*websocket.Conn
	left := make(chan struct{}, 1)
	for i, server := range v.busy.servers {
		for _, user := range []string{"alice", "erica"} {
			socket := dialTwin(t, server, "room")
			sockets = append(sockets, socket)
			awaitFrame(t, socket, fmt.Sprintf(`{"hello":{"user":%q,"device":{"id":"s%d"},"watch":{"everyone":true}%s}}`,
				user, i, tokenField(roomToken(t, user))), "welcome")
			awaitFrame(t, socket, `{"typing":{"to":["bobby","zelda"]},"id":1}`, "ok")
			awaitFrame(t, socket, `{"activity":{"idle":true},"id":2}`, "ok")
			background(t, func(ctx context.Context) error { // which answers the pings of the server
				for {
					_, frame, err := socket.Read(ctx)
					if err != nil {
						<-ctx.Done()
						return err
					}
					if strings.HasPrefix(string(frame), `{"ok"`) {
						left <- struct{}{}
					}
				}
			})
		}
	}
	return func() {
		writeFrame(t, sockets[0], `{"leave":{},"id":3}`)
		select {
		case <-left:
		case <-time.After(worldWait):
			t.Fatal("the connection of a stranger does not respond")
		}
		for _, socket := range sockets {
			_ = socket.Close(websocket.StatusNormalClosure, "")
		}
	}
}

// awaitFrame sends a frame, and reads until one with a name.
func awaitFrame(t *testing.T, socket *websocket.Conn, frame, name string) string {
	t.Helper()
	writeFrame(t, socket, frame)
	for {
		_, answer, err := socket.Read(t.Context())
		require.NoError(t, err)
		if strings.HasPrefix(string(answer), `{"`+name+`"`) {
			return string(answer)
		}
		require.NotContains(t, string(answer), `{"problem"`)
	}
}

// checkNewest lets a stranger's ping be as far ahead of the clock as one can be. A list does not begin there.
func (v *strangersTest) checkNewest(t *testing.T) {
	t.Helper()
	v.busy.do(t, 0, "POST", room+"/users/alice/ping", fmt.Sprintf(`{"at":%q}`, exact(time.Now().Add(4*time.Second))))
	for _, path := range []string{"/users", "/counts"} {
		r := send(t, v.busy.servers[0], http.MethodGet, room+path, "", roomToken(t, "bobby"))
		after := time.Now()
		var page struct {
			AsOf time.Time `json:"as_of"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &page), r.body)
		require.Less(t, page.AsOf, after.Add(time.Second), "%s shows the newest time of a stranger", path)
	}
}

// strangersAreDeleted deletes strangers: one by one, and by retention.
func (v *strangersTest) strangersAreDeleted(t *testing.T) {
	t.Helper()
	v.busy.do(t, 0, "DELETE", room+"/users/alice", "")
	v.busy.do(t, 1, "DELETE", room+"/users/davey/connections", "")
	v.busy.do(t, 0, "POST", room+"/users/william/ping",
		fmt.Sprintf(`{"at":%q}`, exact(v.begun.Add(-40*time.Hour))))
	now, err := v.busy.store.Now(t.Context())
	require.NoError(t, err)
	trimmed, err := v.busy.store.Trim(t.Context(), "room", store.TrimQuery{Age: 30 * time.Hour, Now: now, All: true})
	require.NoError(t, err)
	require.Equal(t, 1, trimmed.Deleted)
}

// friendGoes lets hank remove bobby.
func (v *strangersTest) friendGoes(t *testing.T) {
	t.Helper()
	for _, w := range []world{v.quiet, v.busy} {
		require.Equal(t, "green", w.shownTo(t, 1, roomToken(t, "bobby"), "hank"))
		w.do(t, 0, "PATCH", room+"/users/hank/contacts", `{"remove":["bobby"]}`)
		for i := range w.servers {
			require.Equal(t, "never seen", w.shownTo(t, i, roomToken(t, "bobby"), "hank"), "at once")
			require.NotContains(t, w.listedTo(t, i, roomToken(t, "bobby")), "hank", "at once")
		}
	}
}

// strangerGoesOn lets hank come and go, say something, and know others, in the busy world.
func (v *strangersTest) strangerGoesOn(t *testing.T) {
	t.Helper()
	users := room + "/users/"
	v.busy.do(t, 1, "POST", users+"hank/leave", fmt.Sprintf(`{"at":%q}`, exact(v.begun.Add(-time.Minute))))
	v.busy.do(t, 0, "PUT", users+"hank/availability", `{"availability":"busy","note":"with alice"}`)
	v.busy.do(t, 1, "PUT", users+"hank/contacts", `{"users":["alice"]}`)
	v.busy.do(t, 0, "POST", users+"hank/ping", fmt.Sprintf(`{"at":%q}`, exact(v.begun.Add(-30*time.Second))))
}

// friendReturns lets hank add bobby again, in the same state in both worlds.
func (v *strangersTest) friendReturns(t *testing.T) {
	t.Helper()
	users := room + "/users/"
	v.busy.do(t, 0, "DELETE", users+"hank/availability", "")
	v.quiet.do(t, 0, "POST", users+"hank/leave", fmt.Sprintf(`{"at":%q}`, exact(v.begun.Add(-time.Minute))))
	v.quiet.do(t, 0, "POST", users+"hank/ping", fmt.Sprintf(`{"at":%q}`, exact(v.begun.Add(-30*time.Second))))
	v.busy.do(t, 0, "PATCH", users+"hank/contacts", `{"remove":["alice"]}`)
	doAll(t, []world{v.quiet, v.busy}, "PATCH", users+"hank/contacts", `{"add":["bobby"]}`)
}

// wait begins long polls as bobby and zelda in the busy world. It returns a function that checks that nothing ended
// them before their time, and that their cursors remained.
func (v *strangersTest) wait(t *testing.T) (check func()) {
	t.Helper()
	const wait = 3 * time.Second
	type ended struct {
		took          time.Duration
		before, after map[string]any
	}
	results := make(chan ended, 16)
	var begun int
	for _, server := range v.busy.servers {
		for _, user := range []string{"bobby", "zelda"} {
			for _, query := range []string{"", "user=alice&user=davey&user=erica&user=hank"} {
				credential, path := roomToken(t, user), server+room+"/changes?"+query
				before := untilNothingNew(t, path, credential)
				begun++
				go func() {
					start := time.Now()
					text, err := fetch(t.Context(), path+"&wait="+wait.String()+"&cursor="+
						url.QueryEscape(before["cursor"].(string)), credential)
					r := ended{took: time.Since(start), before: before}
					if err == nil {
						err = json.Unmarshal([]byte(text), &r.after)
					}
					if err != nil {
						t.Error(err)
					}
					results <- r
				}()
			}
		}
	}
	return func() {
		for range begun {
			r := <-results
			require.Empty(t, r.after["users"])
			require.Equal(t, false, r.after["reset"])
			require.Equal(t, r.before["cursor"], r.after["cursor"])
			require.GreaterOrEqual(t, r.took, wait)
		}
	}
}

// untilNothingNew polls until there is nothing new, and returns the last response.
func untilNothingNew(t *testing.T, path, credential string) (answer map[string]any) {
	t.Helper()
	for range 10 {
		target := path
		if answer != nil {
			target += "&cursor=" + url.QueryEscape(answer["cursor"].(string))
		}
		before := answer
		text, err := fetch(t.Context(), target, credential)
		require.NoError(t, err)
		answer = decoded(t, text)
		if before != nil && answer["cursor"] == before["cursor"] {
			return answer
		}
	}
	t.Fatal("there is always something new")
	return nil
}
