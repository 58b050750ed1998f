package privacy

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// knowingTest is what bobby is shown of carla while their contacts change.
type knowingTest struct {
	site
	named, all   []*sight // of connections that follow carla, and that follow everyone
	bobby, carla *twinSocket
	typed        int
}

// TestVisibilityFollowsContacts changes contacts while connections are open: requests know at once, connections
// soon, and carla's typing reaches bobby if she has him among her contacts.
func TestVisibilityFollowsContacts(t *testing.T) {
	t.Parallel()
	testTwins(t, room, func(t *testing.T, twins *twins) {
		const bobby, carla = "/users/bobby", "/users/carla"
		w := knowingTest{site: twins.hiding}
		w.do(t, 0, "PUT", bobby+"/contacts", `{"users":["carla","davey"]}`)
		w.bobby, w.carla = w.connect(t, 0, "bobby", ""), w.connect(t, 1, "carla", "")
		w.follow(t)
		w.shows(t, "never seen")

		w.do(t, 1, "PATCH", carla+"/contacts", `{"add":["bobby","alice"]}`)
		w.shows(t, "green")
		w.do(t, 0, "PUT", carla+"/availability", `{"availability":"busy","note":"lunch"}`)
		w.shows(t, "green busy lunch")
		w.do(t, 0, "PATCH", carla+"/contacts", `{"remove":["bobby"]}`)
		w.shows(t, "never seen")
		w.do(t, 0, "PUT", carla+"/availability", `{"availability":"away"}`)
		w.do(t, 1, "PUT", carla+"/contacts", `{"users":["bobby"]}`)
		w.shows(t, "green away")
		w.do(t, 1, "DELETE", carla+"/contacts", "")
		w.shows(t, "never seen")

		w.do(t, 0, "PATCH", carla+"/contacts", `{"add":["bobby"]}`)
		w.shows(t, "green away")
		w.do(t, 0, "DELETE", carla, "")
		w.carla = nil // deletion has ended her connection
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
		w.do(t, 0, "DELETE", "?confirm=room", "")
		w.shows(t, "never seen")
		for _, s := range append(w.named, w.all...) {
			s.check(t)
		}
	})
}

// follow follows changes as bobby, in every way, on all servers.
func (w *knowingTest) follow(t *testing.T) {
	t.Helper()
	named, all := sightQuery{name: "carla", users: []string{"davey", "carla"}}, sightQuery{name: "everyone"}
	token := w.tokenOf(t, "bobby")
	for i := range w.servers {
		w.named = append(w.named, append(w.openStreams(t, i, token, named), w.openPolls(t, i, token, named)...)...)
		w.all = append(w.all, append(w.openStreams(t, i, token, all), w.openPolls(t, i, token, all)...)...)
	}
}

// shows checks that bobby is shown carla in some words: by requests at once, and by connections soon.
func (w *knowingTest) shows(t *testing.T, want string) {
	t.Helper()
	for i := range w.servers {
		require.Equal(t, want, w.shownTo(t, i, w.tokenOf(t, "bobby"), "carla"))
	}
	w.names(t, want)
	w.lists(t, want)
	if w.carla == nil {
		return
	}
	w.typed++
	w.carla.ask(t, fmt.Sprintf(`{"typing":{"to":["bobby"],"in":"place %d"},"id":1}`, w.typed), "ok")
	if want != "never seen" { // otherwise, this one would come before the next one
		require.Contains(t, w.bobby.await(t, "typing"), fmt.Sprintf(`"in":"place %d"`, w.typed))
	}
}

// names waits until the connections that follow carla show her in some words.
func (w *knowingTest) names(t *testing.T, want string) {
	t.Helper()
	for _, s := range w.named {
		s.until(t, want)
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
	for i := range w.servers {
		require.Equal(t, list, w.listedTo(t, i, w.tokenOf(t, "bobby")))
		counts := w.send(t, i, http.MethodGet, "/counts", "", w.tokenOf(t, "bobby"))
		require.InDelta(t, count, decoded(t, counts.body)["total"], 0, counts.body)
	}
	for _, s := range w.all {
		s.until(t, want)
	}
}

// TestVisibilityReload changes the visibility of a running server, there and back: what is open ends, so that clients
// begin again by the new rule.
func TestVisibilityReload(t *testing.T) {
	t.Parallel()
	secretFile := testserver.WriteFile(t, "secret", []byte(testserver.Secret))
	config := func(visibility string) string {
		return testserver.Issuer + "jwt-secret-file: " + secretFile + "\nvisibility: " + visibility +
			fmt.Sprintf("\nkeys: {all: {hash: '%s', scopes: [ping, read], namespaces: ['*']}}\n", testserver.HashOf("ls_all"))
	}
	file := testserver.WriteConfig(t, config("everyone"))
	program := testserver.Start(t, "--config", file)
	s := site{servers: []string{program.URL}, namespace: room}
	bobby := s.tokenOf(t, "bobby")
	s.do(t, 0, "POST", "/users/carla/ping", "")
	for _, change := range [][3]string{{"green", "contacts", "never seen"}, {"never seen", "everyone", "green"}} {
		ended := make(chan error, 2)
		for _, follow := range []func(*sight, context.Context, string, string, sightQuery) error{
			(*sight).readEvents, (*sight).readFrames,
		} {
			open := &sight{site: s, shown: map[string]string{}}
			go func() { ended <- follow(open, t.Context(), program.URL, bobby, sightQuery{users: []string{"carla"}}) }()
			open.until(t, change[0])
			require.Eventually(t, func() bool { return open.place() != "" }, worldWait, 10*time.Millisecond)
		}
		program.Log.Reset()
		require.NoError(t, os.WriteFile(file, []byte(config(change[1])), 0o600))
		require.NoError(t, program.Cmd.Process.Signal(syscall.SIGHUP))
		for range 2 {
			if err := <-ended; websocket.CloseStatus(err) != 4503 {
				require.ErrorIs(t, err, errStreamEnded)
			}
		}
		require.Eventually(t, func() bool { return strings.Contains(program.Log.String(), "→ "+change[1]) }, worldWait,
			10*time.Millisecond, program.Log)
		require.Equal(t, change[2], s.shownTo(t, 0, bobby, "carla"))
		require.Equal(t, "green", s.shownTo(t, 0, "ls_all", "carla"), "keys see everyone")
	}
}
