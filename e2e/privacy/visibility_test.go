package privacy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// bobbyContacts are those of bobby. To him, alice, davey and erica are strangers: see [pairUsers]. He has them among
// his contacts, but they do not have him. Carla, frank, hank and marker are contacts of his who have him, and grace has
// him although he does not have her. Marker is a contact of zelda as well. Young has no contacts.
const bobbyContacts = `{"users":["alice","carla","davey","erica","frank","hank","marker","young","zelda"]}`

// TestVisibilityHidesStrangers compares all that users can learn in two sites that differ in what strangers do: users
// who do not have them among their contacts.
func TestVisibilityHidesStrangers(t *testing.T) {
	t.Parallel()
	testPair(t, room, func(t *testing.T, w *pair) {
		w.still = true
		w.seedStrangers(t)
		w.follow(t)
		w.check(t, "before", 0)
		w.strangersPing(t)
		w.check(t, "after strangers came", 0)
		w.checkDifference(t)
		answered := w.wait(t)
		w.strangersSpeak(t)
		answered()
		w.check(t, "after strangers said something", 0)
		leave := w.strangersConnect(t)
		w.check(t, "while strangers are connected", 0)
		leave()
		w.checkNewest(t)
		w.strangersAreDeleted(t)
		w.check(t, "after strangers left and were deleted", 0)

		w.allowResets(true) // a client whose contacts change between two polls is sent all
		w.both(t, "PATCH", "/users/bobby/contacts", `{"remove":["alice","davey"],"add":["xenia"]}`)
		w.check(t, "after a change of one's own contacts", 0)
		w.both(t, "PUT", "/users/bobby/contacts", bobbyContacts)
		w.strangersPing(t)
		w.check(t, "after changing them back", 0)
		w.allowResets(false)

		w.friendGoes(t)
		w.check(t, "after a contact became a stranger", 1)
		w.strangerGoesOn(t)
		w.check(t, "after that one went on", 0)
		w.friendReturns(t)
		w.check(t, "after that one returned", 1)
		w.strangersPing(t)
		w.checkTicks(t)
	})
}

// allowResets says whether polls of everyone can be a reset.
func (w *pair) allowResets(allowed bool) {
	for gone, hiding := range w.observations {
		if strings.HasPrefix(gone.way, "bobby follows everyone by polls") {
			gone.allowResets(allowed)
			hiding.allowResets(allowed)
		}
	}
}

// checkTicks waits until all clients got a tick, whose cursors were compared with those of the batches before. Polls
// have none.
func (w *pair) checkTicks(t *testing.T) {
	t.Helper()
	for gone, hiding := range w.observations {
		if strings.Contains(gone.way, " by polls") {
			continue
		}
		for _, s := range []*observation{gone, hiding} {
			require.Eventually(t, func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.ticks > 0
			}, testWait, 50*time.Millisecond, "%s: a tick", s.way)
			s.check(t)
		}
	}
}

// seedStrangers records the same users in both sites.
func (w *pair) seedStrangers(t *testing.T) {
	t.Helper()
	var pings []string
	for user, age := range map[string]time.Duration{
		"carla": 15 * time.Minute, "frank": 15 * time.Hour, "grace": 2 * time.Minute, "hank": 3 * time.Minute,
		"zelda": 4 * time.Minute,
	} {
		pings = append(pings, fmt.Sprintf(`{"user":%q,"at":%q}`, user, w.ago(age)))
	}
	w.both(t, "POST", "/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
	w.both(t, "POST", "/users/bobby/ping", fmt.Sprintf(`{"at":%q,"device":{"id":"tab","kind":"web"}}`, w.ago(time.Minute)))
	w.both(t, "POST", "/users/frank/leave", fmt.Sprintf(`{"at":%q}`, w.ago(14*time.Hour)))
	for user, contacts := range map[string]string{
		"bobby": bobbyContacts, "zelda": `{"users":["alice","marker"]}`, "marker": `{"users":["bobby","zelda"]}`,
		"carla": `{"users":["bobby"]}`, "frank": `{"users":["bobby"]}`, "grace": `{"users":["bobby"]}`,
		"hank": `{"users":["bobby"]}`,
	} {
		w.both(t, "PUT", "/users/"+user+"/contacts", contacts)
	}
}

// checkDifference checks that the sites do differ, and that bobby sees his friends in both: otherwise the test compares
// nothing.
func (w *pair) checkDifference(t *testing.T) {
	t.Helper()
	bobby := w.gone.tokenOf(t, "bobby")
	for _, s := range []site{w.gone, w.hiding} {
		for i := range s.servers {
			require.Equal(t, "marker hank carla frank", s.listedTo(t, i, bobby))
			for user, want := range map[string]string{
				"grace": "green", "bobby": "green", "alice": "never seen", "zelda": "never seen",
			} {
				require.Equal(t, want, s.shownTo(t, i, bobby, user), user)
			}
			require.Equal(t, "marker", s.listedTo(t, i, s.tokenOf(t, "zelda")))
			require.Empty(t, s.listedTo(t, i, s.tokenOf(t, "young")))
		}
	}
	require.Equal(t, "never seen", w.gone.shownTo(t, 0, "ls_reader", "alice"))
	require.Equal(t, "green", w.hiding.shownTo(t, 0, "ls_reader", "alice"))
	require.NotContains(t, w.gone.listedTo(t, 0, "ls_reader"), "davey")
	require.Contains(t, w.hiding.listedTo(t, 0, "ls_reader"), "davey")
}

// play sends requests with all rights, one a line: the server, the method, the path after the namespace, and the body.
func (s site) play(t *testing.T, lines string) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		words := append(strings.SplitN(strings.TrimSpace(line), " ", 4), "")
		server, err := strconv.Atoi(words[0])
		require.NoError(t, err, line)
		s.do(t, server, words[1], words[2], words[3])
	}
}

// strangersPing lets strangers come and leave.
func (w *pair) strangersPing(t *testing.T) {
	t.Helper()
	w.hiding.play(t, `
		0 POST /users/alice/ping {"device":{"id":"tab","kind":"web"},"activity":"idle"}
		1 POST /users/alice/ping {"device":{"id":"app","kind":"mobile"}}
		0 POST /users/erica/ping
		1 POST /users/erica/leave
		1 POST /pings {"pings":[{"user":"davey"},{"user":"alice"},{"user":"xenia"}]}
		0 POST /leaves {"leaves":[{"user":"xenia"}]}`)
}

// strangersSpeak lets strangers set an availability, of whom one becomes invisible, and have contacts, but not bobby.
func (w *pair) strangersSpeak(t *testing.T) {
	t.Helper()
	w.hiding.play(t, `
		0 PUT /users/alice/availability {"availability":"busy","note":"lunch","for":"1h"}
		1 PUT /users/erica/availability {"availability":"away","for":"100ms"}
		1 PUT /users/davey/availability {"availability":"invisible"}
		0 POST /users/davey/ping
		0 PUT /users/davey/availability {"note":"back"}
		1 DELETE /users/alice/availability
		1 PUT /users/alice/availability {"note":"here"}
		0 PUT /users/alice/contacts {"users":["davey","erica","carla"]}
		1 PUT /users/davey/contacts {"users":["alice","xenia"]}
		1 PATCH /users/alice/contacts {"remove":["carla"],"add":["xenia"]}
		0 DELETE /users/davey/contacts`)
}

// strangersConnect lets strangers connect to all servers, follow everyone and type to bobby. It returns how to end
// that.
func (w *pair) strangersConnect(t *testing.T) (leave func()) {
	t.Helper()
	var sockets []*clientSocket
	for i := range w.hiding.servers {
		for _, user := range []string{"alice", "erica"} {
			socket := w.hiding.connect(t, i, user, fmt.Sprintf(`,"device":{"id":"s%d"},"watch":{"everyone":true}`, i))
			socket.ask(t, `{"typing":{"to":["bobby","zelda"]},"id":1}`, "ok")
			socket.ask(t, `{"activity":{"idle":true},"id":2}`, "ok")
			sockets = append(sockets, socket)
		}
	}
	return func() {
		sockets[0].ask(t, `{"leave":{},"id":3}`, "ok")
		for _, socket := range sockets[1:] { // the server has ended the first one
			socket.hangUp(t)
		}
	}
}

// checkNewest lets a stranger's ping be as far ahead of the clock as one can be. A list does not begin there.
func (w *pair) checkNewest(t *testing.T) {
	t.Helper()
	ahead := time.Now().Add(4 * time.Second)
	w.hiding.do(t, 0, "POST", "/users/alice/ping", fmt.Sprintf(`{"at":%q}`, exact(ahead)))
	for _, path := range []string{"/users", "/counts"} {
		r := w.hiding.send(t, 0, http.MethodGet, path, "", w.hiding.tokenOf(t, "bobby"))
		after := time.Now()
		var page struct {
			AsOf time.Time `json:"as_of"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &page), r.body)
		require.Less(t, page.AsOf, after.Add(time.Second), "%s shows the newest time of a stranger", path)
	}
}

// strangersAreDeleted deletes strangers: one by one, and by retention.
func (w *pair) strangersAreDeleted(t *testing.T) {
	t.Helper()
	w.hiding.do(t, 0, "DELETE", "/users/alice", "")
	w.hiding.do(t, 1, "DELETE", "/users/davey/connections", "")
	w.hiding.do(t, 0, "POST", "/users/william/ping",
		fmt.Sprintf(`{"at":%q}`, w.ago(40*time.Hour)))
	now, err := w.hiding.store.Now(t.Context())
	require.NoError(t, err)
	trimmed, err := w.hiding.store.Trim(t.Context(), w.hiding.name(),
		store.TrimQuery{Age: 30 * time.Hour, Now: now, All: true})
	require.NoError(t, err)
	require.Equal(t, 1, trimmed.Deleted)
}

// friendGoes lets hank remove bobby.
func (w *pair) friendGoes(t *testing.T) {
	t.Helper()
	bobby := w.gone.tokenOf(t, "bobby")
	for _, s := range []site{w.gone, w.hiding} {
		require.Equal(t, "green", s.shownTo(t, 1, bobby, "hank"))
		s.do(t, 0, "PATCH", "/users/hank/contacts", `{"remove":["bobby"]}`)
		for i := range s.servers {
			require.Equal(t, "never seen", s.shownTo(t, i, bobby, "hank"), "at once")
			require.NotContains(t, s.listedTo(t, i, bobby), "hank", "at once")
		}
	}
}

// strangerGoesOn lets hank come and go, set an availability, and know others, where strangers act.
func (w *pair) strangerGoesOn(t *testing.T) {
	t.Helper()
	w.hiding.play(t, fmt.Sprintf(`
		1 POST /users/hank/leave {"at":%q}
		0 PUT /users/hank/availability {"availability":"busy","note":"with alice"}
		1 PUT /users/hank/contacts {"users":["alice"]}
		0 POST /users/hank/ping {"at":%q}`, w.ago(time.Minute), w.ago(30*time.Second)))
}

// friendReturns lets hank add bobby again, in the same state in both sites.
func (w *pair) friendReturns(t *testing.T) {
	t.Helper()
	w.hiding.play(t, `
		0 DELETE /users/hank/availability
		0 PATCH /users/hank/contacts {"remove":["alice"]}`)
	w.gone.play(t, fmt.Sprintf(`
		0 POST /users/hank/leave {"at":%q}
		0 POST /users/hank/ping {"at":%q}`, w.ago(time.Minute), w.ago(30*time.Second)))
	w.both(t, "PATCH", "/users/hank/contacts", `{"add":["bobby"]}`)
}
