package browser

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

func putAvailability(t *testing.T, s *testserver.Server, body string) {
	t.Helper()
	s.Succeed(t, http.MethodPut, alice+"/availability", body)
}

// beside is what the row of alice shows beside the name.
func beside() string { return rowOf("alice") + `?.querySelector(".about").textContent` }

// aliceHasDot waits until the row of alice has a dot.
func aliceHasDot(dot string) step {
	return until(fmt.Sprintf(`%s?.querySelector("presence-dot").matches(":state(%s)")`, rowOf("alice"), dot))
}

// TestDashboardShowsAvailability checks that the list and the changes show the availability of users, as text, who is
// idle, and who is in a call.
func TestDashboardShowsAvailability(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, lists("alice", "green", "online now"), says("#connection", "Live"))
	putAvailability(t, s, `{"availability":"busy","note":"<b>meeting</b>"}`)
	b.Do(t, aliceHasDot("red"), until(beside()+` == "busy · “<b>meeting</b>”"`),
		until(`document.querySelector("#changes .mark").matches(".red")`), says("#changes li", "alice"))
	require.Contains(t, textOf(t, b, "#changes li"), "is green, is busy, note “<b>meeting</b>”")
	putAvailability(t, s, `{"availability":"away"}`)
	b.Do(t, aliceHasDot("yellow"), says("#changes li", "is away"))
	putAvailability(t, s, `{"availability":null}`)
	b.Do(t, aliceHasDot("green"), says("#changes li", "availability ended"))
	s.Post(t, alice+"/ping", `{"device":{"id":"phone"},"activity":"idle"}`)
	b.Do(t, aliceHasDot("yellow"), until(beside()+` == "idle"`), says("#changes li", "is idle"))
	s.Post(t, alice+"/ping", `{"device":{"id":"phone"}}`)
	b.Do(t, aliceHasDot("green"), says("#changes li", "is active"))
	call := s.Succeed(t, http.MethodPost, "/v1/namespaces/chat/calls", `{"from":"bob","to":"alice"}`)
	path := "/v1/namespaces/chat/calls/" + call["id"].(string)
	s.Post(t, path+"/accept", `{"user":"alice"}`)
	b.Do(t, aliceHasDot("red"), until(beside()+` == "in a call"`), says("#changes li", "is in a call"),
		until(`document.querySelector("#changes .mark").matches(".red")`))
	s.Post(t, path+"/end", `{"user":"bob"}`)
	b.Do(t, aliceHasDot("green"), until(beside()+` == ""`), says("#changes li", "is no longer in a call"))
	require.Empty(t, b.Seen())
}

// TestDashboardSetsAvailability sets and clears a user's availability. The page shows that a user is invisible, for
// those who may know, and a refresh does not replace what is being entered.
func TestDashboardSetsAvailability(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	b := openDashboard(t, s.URL, "#namespace=chat&user=alice")
	const field = `document.querySelector(".setting [aria-label='%s']")`
	enter := func(label, value string) step {
		return until(fmt.Sprintf(`(element => {
			element.value = %q
			return element.dispatchEvent(new Event("input", { bubbles: true }))
		})(`+field+`)`, value, label))
	}
	b.Do(t, says(".availability p", "Availability: not set."), enter("Availability", "busy"),
		enter("Note", "in a <b>meeting</b>"), enter("How long", "1h"))
	s.Post(t, alice+"/ping", `{"device":{"id":"phone"}}`)
	b.Do(t, until(`document.querySelector("#users tbody")?.innerText.includes("phone")`))
	require.Equal(t, "busy", testbrowser.Evaluate[string](t, b, fmt.Sprintf(field, "Availability")+".value"))
	b.Do(t, clickOn(".setting button"), aliceHasDot("red"),
		says(".availability p", "Availability: busy, note “in a <b>meeting</b>”, until "), says("#notice", "alice: availability recorded."))
	requireFits(t, b, "the form")
	b.Do(t, enter("Availability", "invisible"), enter("Note", ""), enter("How long", ""),
		clickOn(".setting button"), aliceHasDot("grey"), says(".availability p", "Availability: invisible."))
	require.Equal(t, "busy · “in a <b>meeting</b>”", testbrowser.Evaluate[string](t, b, beside()), "as of a user who left")
	b.Do(t, enter("Availability", ""), clickOn(".setting button"), says(".availability p", "Availability: not set."))
	require.Empty(t, b.Seen())
}

// TestDashboardExplainsAvailability checks that a reader without a key is not asked for one when a user is opened.
func TestDashboardExplainsAvailability(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--config", testserver.WriteConfig(t, fmt.Sprintf(
		"anonymous-read: [chat]\nkeys: {full: {hash: %q, scopes: [ping, read], namespaces: ['*']}}\n", testserver.HashOf(fullKey))))
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, says("#connection", "Live"), until(`(location.hash += "&user=alice", true)`),
		lists("alice", "grey", "never seen"), says(".availability p", "You cannot see or set the availability of this user."))
	require.True(t, testbrowser.Evaluate[bool](t, b, `document.querySelector(".setting").hidden`))
	require.True(t, testbrowser.Evaluate[bool](t, b, `document.getElementById("signin").hidden`))
}
