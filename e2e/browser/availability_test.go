package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testbrowser"
)

// says records a user's availability from now on.
func (s *scripted) says(t *testing.T, user string, availability lastseen.AvailabilityState) {
	t.Helper()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	_, err = s.SetAvailability(t.Context(), "chat", user, availability, now)
	require.NoError(t, err)
}

// pingsIdle records that a device of a user is there that nobody uses.
func (s *scripted) pingsIdle(t *testing.T, user string) {
	t.Helper()
	url := s.server.URL + "/v1/namespaces/chat/users/" + user + "/ping"
	response, err := http.Post(url, "application/json", strings.NewReader(`{"device":{"id":"phone"},"activity":"idle"}`))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// talkative are users of each status with an availability, with what a screen reader says of them.
func (s *scripted) talkative(t *testing.T) (users map[string]lastseen.Dot, spoken map[string]string) {
	t.Helper()
	users, spoken = map[string]lastseen.Dot{}, map[string]string{}
	ages := map[lastseen.Status]time.Duration{
		lastseen.Green: 0, lastseen.Yellow: 3*time.Minute + 5*time.Second, lastseen.Grey: 150 * time.Minute,
	}
	texts := map[string]string{
		"green-busy": "busy: in <b>a</b> meeting", "green-away": "away: in <b>a</b> meeting",
		"green-": "online: in <b>a</b> meeting", "yellow-busy": "busy, last seen 3 minutes ago: in <b>a</b> meeting",
		"yellow-away": "away, last seen 3 minutes ago: in <b>a</b> meeting",
		"yellow-":     "last seen 3 minutes ago: in <b>a</b> meeting",
		"grey-busy":   "last seen 2 hours ago: in <b>a</b> meeting",
		"grey-away":   "last seen 2 hours ago: in <b>a</b> meeting",
		"grey-":       "last seen 2 hours ago: in <b>a</b> meeting",
	}
	for status, age := range ages {
		for _, availability := range []lastseen.Availability{lastseen.Busy, lastseen.Away, ""} {
			user := string(status) + "-" + string(availability)
			s.pingedAgo(t, user, age)
			s.says(t, user, lastseen.AvailabilityState{Availability: availability, Note: "in <b>a</b> meeting"})
			users[user] = lastseen.DotOf(status, availability, false, false)
			spoken[user] = texts[user]
		}
	}
	s.pingsIdle(t, "idle")
	users["idle"], spoken["idle"] = lastseen.DotOf(lastseen.Green, "", true, false), "idle"
	s.pingsIdle(t, "idle-busy")
	s.says(t, "idle-busy", lastseen.AvailabilityState{Availability: lastseen.Busy})
	users["idle-busy"], spoken["idle-busy"] = lastseen.DotOf(lastseen.Green, lastseen.Busy, true, false), "busy"
	s.talk(t, "green-call", "yellow-call")
	s.talk(t, "grey-call", "busy-call")
	s.pingedAgo(t, "green-call", 0)
	s.pingedAgo(t, "yellow-call", ages[lastseen.Yellow])
	s.pingedAgo(t, "grey-call", ages[lastseen.Grey])
	s.pingedAgo(t, "busy-call", 0)
	s.says(t, "busy-call", lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "ring <i>later</i>"})
	for user, text := range map[string]string{
		"green-call": "in a call", "yellow-call": "in a call, last seen 3 minutes ago",
		"grey-call": "last seen 2 hours ago", "busy-call": "in a call: ring <i>later</i>",
	} {
		users[user], spoken[user] = lastseen.RedDot, text
	}
	users["grey-call"] = lastseen.GreyDot
	s.pingedAgo(t, "hidden", time.Hour)
	s.says(t, "hidden", lastseen.AvailabilityState{Availability: lastseen.Invisible, Note: "a secret"})
	users["hidden"], spoken["hidden"] = lastseen.GreyDot, "last seen just now"
	return users, spoken
}

// TestDotsShowAvailability: each dot shows what lastseen.DotOf returns, over a connection and by lookups. What a user
// says is read aloud as text, and nothing of it is HTML.
func TestDotsShowAvailability(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"auto", "http"} {
		t.Run(transport, func(t *testing.T) {
			s := newScripted(t, scriptOptions{})
			users, texts := s.talkative(t)
			var html strings.Builder
			for user := range users {
				html.WriteString(s.dot(user))
			}
			b := s.open(t, html.String(), fmt.Sprintf("connect({ url, namespace, transport: %q })", transport))
			for user, dot := range users {
				element := fmt.Sprintf(`document.querySelector("presence-dot[user='%s']")`, user)
				b.Do(t, until(fmt.Sprintf(`%s.matches(":state(%s)")`, element, dot)))
				require.Equal(t, texts[user], testbrowser.Evaluate[string](t, b, element+".text"), user)
				require.Equal(t, user+", "+texts[user], testbrowser.Evaluate[string](t, b, element+
					`.shadowRoot.querySelector("title").textContent`), user)
			}
			require.Equal(t, transport == "auto", len(s.lookups()) == 0)
			require.Zero(t, testbrowser.Evaluate[int](t, b, `document.querySelectorAll("b").length`))
			require.Empty(t, s.complaints(b))
		})
	}
}

// TestDotsFollowAvailability: a change of a user's availability, of idle or of a call, is shown at once, with an event
// for each.
func TestDotsFollowAvailability(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, s.dot("alice"), `
		document.addEventListener("presencechange", ({ detail }) => painted.push(detail.dot + " " + detail.note))`)
	b.Do(t, untilSpoken("alice, online"), until("(painted = [], true)"))
	s.says(t, "alice", lastseen.AvailabilityState{Availability: lastseen.Busy})
	b.Do(t, untilSpoken("alice, busy"))
	s.says(t, "alice", lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "<i>now</i>"})
	b.Do(t, untilSpoken("alice, busy: <i>now</i>"))
	s.says(t, "alice", lastseen.AvailabilityState{})
	b.Do(t, untilSpoken("alice, online"))
	s.pingsIdle(t, "alice")
	b.Do(t, untilSpoken("alice, idle"))
	s.talk(t, "alice", "bob")
	b.Do(t, untilSpoken("alice, in a call"))
	s.caller(t).act("alice-bob", "bob", lastseen.End)
	b.Do(t, untilSpoken("alice, idle"))
	s.says(t, "alice", lastseen.AvailabilityState{Availability: lastseen.Invisible})
	b.Do(t, untilSpoken("alice, last seen just now"))
	require.Equal(t, "red null,red <i>now</i>,green null,yellow null,red null,yellow null,grey null", shown(t, b))
}

// TestDotsEndAvailability: a user's availability ends at its time by the server's clock, although the page's is wrong,
// and although the page hears nothing from the server meanwhile.
func TestDotsEndAvailability(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.pingedAgo(t, "alice", 0)
	s.says(t, "alice", lastseen.AvailabilityState{
		Availability: lastseen.Busy, Note: "back soon", Until: s.faults.clock().Add(20 * time.Second),
	})
	b := s.open(t, "", "wrong = -86_400_000"+polling)
	b.Do(t, shows("alice", "green"), until("presences.alice.dot == 'red' && presences.alice.note == 'back soon'"),
		until("presences.alice.availabilityUntil instanceof Date"), s.pass(10*time.Second))
	require.Equal(t, "busy", testbrowser.Evaluate[string](t, b, "client.get('alice').availability"))
	b.Do(t, s.pass(11*time.Second), until("presences.alice.dot == 'green' && presences.alice.note === null"))
	require.True(t, testbrowser.Evaluate[bool](t, b, "presences.alice.availability === null && presences.alice.availabilityUntil === null"))
	require.Len(t, s.lookups(), 1)
}

// TestListShowsAvailability: the rows of a list show the availability of the users, as text.
func TestListShowsAvailability(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "alice", 0)
	s.says(t, "alice", lastseen.AvailabilityState{Availability: lastseen.Away, Note: "<img src=x onerror=alert(1)>"})
	b := s.open(t, s.list(), "")
	b.Do(t, untilRows("alice: away: <img src=x onerror=alert(1)>"))
	require.Zero(t, testbrowser.Evaluate[int](t, b, shadow+`.querySelectorAll("img").length`))
	require.Empty(t, s.complaints(b))
}
