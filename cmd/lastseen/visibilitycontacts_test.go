package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// knowingTest is what bobby is shown of carla while their contacts change.
type knowingTest struct {
	world
	named, all []*sight // of connections that follow carla, and that follow everyone
}

// TestVisibilityFollowsContacts changes contacts while connections are open: requests know at once, connections
// soon.
func TestVisibilityFollowsContacts(t *testing.T) {
	t.Parallel()
	eachWorlds(t, 1, func(t *testing.T, worlds []world) {
		const bobby, carla = room + "/users/bobby", room + "/users/carla"
		w := knowingTest{world: worlds[0]}
		w.do(t, 0, "PUT", bobby+"/contacts", `{"users":["carla","davey"]}`)
		w.do(t, 0, "POST", carla+"/ping", "")
		w.follow(t)
		w.shows(t, "never seen")

		w.do(t, 1, "PATCH", carla+"/contacts", `{"add":["bobby","alice"]}`)
		w.shows(t, "green")
		w.do(t, 0, "PUT", carla+"/availability", `{"availability":"busy","note":"lunch"}`)
		w.shows(t, "green busy lunch")
		w.do(t, 1, "POST", carla+"/leave", "")
		w.shows(t, "left busy lunch")
		places := w.places()
		w.do(t, 0, "PATCH", carla+"/contacts", `{"remove":["bobby"]}`)
		w.shows(t, "never seen")
		w.resume(t, places)
		w.do(t, 1, "POST", carla+"/ping", "")
		w.do(t, 0, "PUT", carla+"/availability", `{"availability":"away"}`)
		w.do(t, 1, "PUT", carla+"/contacts", `{"users":["bobby"]}`)
		w.shows(t, "green away")
		w.do(t, 0, "PUT", carla+"/contacts", `{"users":["alice"]}`)
		w.shows(t, "never seen")
		w.do(t, 0, "PUT", carla+"/contacts", `{"users":["bobby","alice"]}`)
		w.shows(t, "green away")
		w.do(t, 1, "DELETE", carla+"/contacts", "")
		w.shows(t, "never seen")

		w.do(t, 0, "PATCH", carla+"/contacts", `{"add":["bobby"]}`)
		w.shows(t, "green away")
		w.do(t, 0, "DELETE", carla, "")
		w.shows(t, "never seen")
		w.do(t, 1, "POST", carla+"/ping", "")
		w.shows(t, "never seen") // the contacts were deleted, too
		w.do(t, 1, "PUT", carla+"/contacts", `{"users":["bobby"]}`)
		w.shows(t, "green")

		w.do(t, 1, "PATCH", bobby+"/contacts", `{"remove":["carla"]}`)
		w.lists(t, "never seen")
		w.names(t, "green") // bobby can follow her by name
		w.do(t, 0, "PATCH", bobby+"/contacts", `{"add":["carla"]}`)
		w.shows(t, "green")
		w.do(t, 0, "DELETE", room+"?confirm=room", "")
		w.shows(t, "never seen")
		for _, s := range append(w.named, w.all...) {
			s.check(t)
		}
	})
}

// follow follows changes as bobby, in every way, on all servers.
func (w *knowingTest) follow(t *testing.T) {
	t.Helper()
	named, all := sightQuery{"carla", []string{"davey", "carla"}}, sightQuery{name: "everyone"}
	for _, server := range w.servers {
		w.named = append(w.named, openStreams(t, server, roomToken(t, "bobby"), named)...)
		w.named = append(w.named, openPolls(t, server, roomToken(t, "bobby"), named)...)
		w.all = append(w.all, openStreams(t, server, roomToken(t, "bobby"), all)...)
		w.all = append(w.all, openPolls(t, server, roomToken(t, "bobby"), all)...)
	}
}

// shows checks that bobby is shown carla in some words: by requests at once, and by connections soon.
func (w *knowingTest) shows(t *testing.T, want string) {
	t.Helper()
	for i := range w.servers {
		require.Equal(t, want, w.shownTo(t, i, roomToken(t, "bobby"), "carla"))
	}
	w.names(t, want)
	w.lists(t, want)
}

// names waits until the connections that follow carla show her in some words.
func (w *knowingTest) names(t *testing.T, want string) {
	t.Helper()
	for _, s := range w.named {
		s.until(t, "carla", want)
	}
}

// lists checks that the list has carla unless she was never seen, and waits until the connections that follow everyone
// show her in some words.
func (w *knowingTest) lists(t *testing.T, want string) {
	t.Helper()
	list, count := "carla", 1.0
	if want == "never seen" {
		list, count = "", 0
	}
	for i, server := range w.servers {
		require.Equal(t, list, w.listedTo(t, i, roomToken(t, "bobby")))
		counts := send(t, server, http.MethodGet, room+"/counts", "", roomToken(t, "bobby"))
		require.InDelta(t, count, decoded(t, counts.body)["total"], 0, counts.body)
	}
	for _, s := range w.all {
		s.until(t, "carla", want)
	}
}

// places returns the cursors of the connections: those that follow carla, then the others.
func (w *knowingTest) places() (places []string) {
	for _, s := range append(w.named, w.all...) {
		places = append(places, s.place())
	}
	return places
}

// resume continues after cursors from a time when bobby saw carla, on another server: he is shown that he does not any
// longer. After that there is nothing new. Clients that follow everyone are sent what they could have missed while they
// listed users, before that.
func (w *knowingTest) resume(t *testing.T, places []string) {
	t.Helper()
	for i, place := range places {
		query := ""
		if i < len(w.named) {
			query = "user=davey&user=carla"
		}
		poll := func(place string) map[string]any {
			r := askReady(t, w.servers[len(w.servers)-1], http.MethodGet,
				room+"/changes?"+query+"&cursor="+url.QueryEscape(place), "", roomToken(t, "bobby"))
			require.Equal(t, http.StatusOK, r.status, r.body)
			return decoded(t, r.body)
		}
		first := poll(place)
		require.Equal(t, true, first["reset"])
		second := poll(first["cursor"].(string))
		require.Equal(t, false, second["reset"])
		for _, user := range append(first["users"].([]any), second["users"].([]any)...) {
			require.Equal(t, "never seen", inWords(user.(map[string]any)))
		}
		third := poll(second["cursor"].(string))
		require.Equal(t, false, third["reset"])
		require.Empty(t, third["users"])
		require.Equal(t, second["cursor"], third["cursor"])
	}
}

// TestVisibilityOfTyping: typing reaches users whom the sender has among the sender's contacts.
func TestVisibilityOfTyping(t *testing.T) {
	t.Parallel()
	eachWorlds(t, 1, func(t *testing.T, worlds []world) {
		w := worlds[0]
		w.do(t, 0, "PUT", room+"/users/bobby/contacts", `{"users":["carla","davey"]}`)
		w.do(t, 0, "PUT", room+"/users/carla/contacts", `{"users":["bobby"]}`)
		bobby := w.connect(t, 0, "bobby")
		carla, davey := w.connect(t, 1, "carla"), w.connect(t, 1, "davey")
		typed := 0
		types := func(socket *websocket.Conn) (place string) {
			typed++
			place = fmt.Sprintf("place %d", typed)
			answer := awaitFrame(t, socket, fmt.Sprintf(`{"typing":{"to":["bobby"],"in":%q},"id":1}`, place), "ok")
			require.JSONEq(t, `{"ok":{},"id":1}`, answer)
			return place
		}
		types(davey) // does not have bobby
		require.Equal(t, types(carla), nextTyping(t, bobby))
		w.do(t, 1, "DELETE", room+"/users/carla/contacts", "")
		types(carla)
		w.do(t, 0, "PUT", room+"/users/davey/contacts", `{"users":["bobby"]}`)
		require.Equal(t, types(davey), nextTyping(t, bobby))
		w.do(t, 1, "PUT", room+"/users/carla/contacts", `{"users":["bobby"]}`)
		require.Equal(t, types(carla), nextTyping(t, bobby))
	})
}

// connect opens a connection of a user to the room, until the test ends.
func (w world) connect(t *testing.T, server int, user string) *websocket.Conn {
	t.Helper()
	socket := dialTwin(t, w.servers[server%len(w.servers)], "room")
	t.Cleanup(func() { _ = socket.CloseNow() })
	awaitFrame(t, socket, fmt.Sprintf(`{"hello":{"user":%q%s}}`, user, tokenField(roomToken(t, user))), "welcome")
	return socket
}

// nextTyping reads until a user types, and returns where.
func nextTyping(t *testing.T, socket *websocket.Conn) string {
	t.Helper()
	for {
		_, frame, err := socket.Read(t.Context())
		require.NoError(t, err)
		if strings.HasPrefix(string(frame), `{"typing"`) {
			var typed struct{ Typing struct{ In string } }
			require.NoError(t, json.Unmarshal(frame, &typed))
			return typed.Typing.In
		}
	}
}

// TestVisibilityRefusesCounts: frames with counts are of everyone, so tokens do not get them.
func TestVisibilityRefusesCounts(t *testing.T) {
	t.Parallel()
	eachWorlds(t, 1, func(t *testing.T, worlds []world) {
		w := worlds[0]
		w.do(t, 0, "POST", room+"/users/carla/ping", "")
		for _, server := range w.servers {
			socket := dialTwin(t, server, "room")
			token := tokenField(roomToken(t, "bobby"))
			writeFrame(t, socket, `{"hello":{"user":"bobby","watch":{"counts":true}`+token+`}}`)
			_, frame, err := socket.Read(t.Context())
			require.NoError(t, err)
			require.Contains(t, string(frame), `"code":"forbidden"`)
			_, _, err = socket.Read(t.Context())
			require.Equal(t, websocket.StatusCode(4403), websocket.CloseStatus(err))
		}
		require.Equal(t, "never seen", w.shownTo(t, 0, "ls_reader", "bobby"), "no connection was recorded")

		bobby := w.connect(t, 0, "bobby")
		writeFrame(t, bobby, `{"watch":{"counts":true},"id":1}`)
		_, frame, err := bobby.Read(t.Context())
		require.NoError(t, err)
		require.Contains(t, string(frame), `"code":"forbidden"`)
		awaitFrame(t, bobby, `{"watch":{"add":["carla"]},"id":2}`, "changes") // the connection stays open

		key := dialTwin(t, w.servers[0], "room")
		defer key.CloseNow()
		awaitFrame(t, key, `{"hello":{"watch":{"counts":true}`+tokenField("ls_reader")+`}}`, "welcome")
		_, frame, err = key.Read(t.Context())
		require.NoError(t, err)
		require.Contains(t, string(frame), `{"counts":`)
		hall := dialTwin(t, w.servers[0], "hall")
		defer hall.CloseNow()
		token := tokenField(bearerOf(t, "bobby", "hall"))
		awaitFrame(t, hall, `{"hello":{"watch":{"counts":true}`+token+`}}`, "welcome")
	})
}
