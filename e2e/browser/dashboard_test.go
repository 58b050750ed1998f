package browser

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// recordStatuses records each status that the row of a user has, in the page's variable statuses.
const recordStatuses = `(window.statuses = [], new MutationObserver(() => {
	const status = document.querySelector("#users > li")?.dataset.status
	if (status && statuses.at(-1) !== status) statuses.push(status)
}).observe(document.getElementById("users"), {subtree: true, childList: true, attributeFilter: ["data-status"]}), true)`

// TestDashboardFollowsAUser pings as a user on the dashboard. The user turns green, and yellow and grey by themselves,
// in the list, the counts and the changes.
func TestDashboardFollowsAUser(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--green", "4s", "--yellow", "8s", "--ping-interval", "2s")
	b := openDashboard(t, s.URL, "")
	b.Do(t, says("#connection", "Live"), showsCounts("0", "0", "0"),
		says("#people-note", "No users yet."),
		until(recordStatuses), typeInto("#user", "alice"), clickOn(`#find [value="ping"]`),
		lists("alice", "green", "online now"),
		says("#notice", "alice: ping recorded, now green."),
		until(`statuses.join().endsWith("green,yellow,grey")`), lists("alice", "grey", ""), showsCounts("0", "0", "1"))
	require.Regexp(t, "^(unknown,)?green,yellow,grey$", testbrowser.Evaluate[string](t, b, "statuses.join()"))
	const changes = `[...document.querySelectorAll("#changes li > span")].map(e => e.innerText).join()`
	b.Do(t, until(changes+` === "alice turned grey,alice turned yellow,alice turned green"`))
	require.Contains(t, testbrowser.Evaluate[string](t, b, `document.querySelector("#chart svg").ariaLabel`),
		"green between 0 and 1, now 0; yellow between 0 and 1, now 0; grey between 0 and 1, now 1")

	b.Do(t, clickIn("alice", ".row button"), clickIn("alice", ".actions button"), lists("alice", "green", "online now"),
		clickIn("alice", ".actions button:last-child"), lists("alice", "grey", "left "), showsCounts("0", "0", "1"),
		until(changes+`.startsWith("alice left,alice turned green")`))
	require.Empty(t, b.Seen())
}

// TestDashboardKeepsStateInTheLink checks that a link shows the same as the page that it was copied from, and that the
// browser's button Back works.
func TestDashboardKeepsStateInTheLink(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, "/v1/namespaces/chat/pings", `{"pings":[{"user":"alice"},{"user":"zoe","at":1000}]}`)
	s.Post(t, "/v1/namespaces/game/pings", `{"pings":[{"user":"bob"}]}`)
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, lists("alice", "green", "online now"), lists("zoe", "grey", ""), clickOn(`#filter [value="grey"]`),
		until(`document.querySelectorAll("#users > li").length === 1`))
	link := testbrowser.Evaluate[string](t, b, "location.href")
	require.Equal(t, s.URL+"/#namespace=chat&status=green%2Cyellow", link)

	b.Do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(link), lists("alice", "green", "online now"))
	require.Equal(t, "true,true,false",
		testbrowser.Evaluate[string](t, b, `[...document.getElementById("filter").elements].map(e => e.checked).join()`))
	require.Equal(t, 1, testbrowser.Evaluate[int](t, b, `document.querySelectorAll("#users > li").length`))

	b.Do(t, typeInto("#user", "zoe"), clickOn(`#find [value="find"]`), lists("zoe", "grey", ""),
		until(`location.hash.endsWith("&user=zoe")`), clickOn("#everyone"), lists("alice", "green", "online now"),
		clickOn(`#namespaces a[href="#namespace=game"]`), lists("bob", "green", "online now"),
		until(`document.title === "game · lastseen"`), until("history.back() ?? true"),
		lists("alice", "green", "online now"), until(`document.title === "chat · lastseen"`))
	require.Empty(t, b.Seen())
}

// TestDashboardSearch looks for exact users: one with devices, one who was never seen, and one who is not valid.
func TestDashboardSearch(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", `{"device":{"id":"phone-1","kind":"mobile","meta":{"app":"2.4"}},"activity":"idle"}`)
	b := openDashboard(t, s.URL, "")
	b.Do(t, lists("alice", "yellow", "online now"), typeInto("#user", "alice"), chromedp.KeyEvent("\r"), // idle
		until(`document.querySelector("#users tbody")?.innerText.startsWith("phone-1\tmobile\tidle\t")`))
	require.Equal(t, "true", testbrowser.Evaluate[string](t, b, `document.querySelector("#users .row button").ariaExpanded`))
	b.Do(t, typeInto("#user", "nobody"), chromedp.KeyEvent("\r"), lists("nobody", "grey", "never seen"),
		until(`document.querySelector("#users .details").innerText.includes("No devices.")`))
	b.Do(t, typeInto("#user", ".."), chromedp.KeyEvent("\r"),
		says("#notice", ". and .. are not valid"))
	b.Do(t, typeInto("#namespace", "other"), chromedp.KeyEvent("\r"),
		says("#title", "other"), showsCounts("0", "0", "0"))
	require.Empty(t, b.Seen())
}

// TestDashboardLeavesAUserClosed checks that the only user on the page stays closed when the page is refreshed.
func TestDashboardLeavesAUserClosed(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	b := openDashboard(t, s.URL, "#namespace=chat&user=alice")
	const opened = `document.querySelector("#users .row button").ariaExpanded`
	const lookups = `performance.getEntriesByType("resource").filter(e => e.name.endsWith("/users/alice")).length`
	b.Do(t, says("#connection", "Live"), lists("alice", "green", "online now"), until(opened+` === "true"`),
		clickIn("alice", ".row button"), until(fmt.Sprintf("(window.before = %s, true)", lookups)))
	for i, user := range []string{"bob", "carol"} { // the page has shown the first response when it asks again
		s.Post(t, "/v1/namespaces/chat/users/"+user+"/ping", "")
		b.Do(t, until(fmt.Sprintf("%s > before + %d", lookups, i)))
	}
	require.Equal(t, "false", testbrowser.Evaluate[string](t, b, opened))
	require.Empty(t, b.Seen())
}

// TestDashboardWithAnInvalidLink checks that a link with an invalid name shows why, and nothing of what was open.
func TestDashboardWithAnInvalidLink(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	b := openDashboard(t, s.URL, "#namespace=.chat")
	const sections = `[...document.querySelectorAll("main > :not(#banner)")].filter(e => e.checkVisibility()).length`
	for _, link := range []string{"#namespace=.chat", "#namespace=chat&user=.."} {
		b.Do(t, until(fmt.Sprintf("(location.hash = %q, true)", link)), says("#banner", "Invalid"),
			until(sections+" === 0"))
		require.Empty(t, textOf(t, b, "#connection"))
		require.Zero(t, testbrowser.Evaluate[int](t, b, `document.querySelectorAll("#users > li").length`))
		b.Do(t, clickOn(`#namespaces a[href="#namespace=chat"]`), lists("alice", "green", "online now"),
			until(`document.getElementById("banner").hidden`), until(sections+" === 5"))
	}
	require.Empty(t, b.Seen())
}

// TestDashboardPages checks that the list has pages, that the first one follows what changes, and that another stays as
// it was.
func TestDashboardPages(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	var pings []string
	for i := range 60 {
		pings = append(pings, fmt.Sprintf(`{"user":"user-%02d","at":%d}`, i, 1000-i))
	}
	s.Post(t, "/v1/namespaces/chat/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
	b := openDashboard(t, s.URL, "")
	users := `[...document.querySelectorAll("#users > li")].map(e => e.dataset.user)`
	shows := func(first, last string) step {
		return until(fmt.Sprintf(`(users => users[0] === %q && users.at(-1) === %q)(%s)`, first, last, users))
	}
	b.Do(t, shows("user-00", "user-24"), clickOn("#next"), shows("user-25", "user-49"), clickOn("#next"),
		shows("user-50", "user-59"))
	require.True(t, testbrowser.Evaluate[bool](t, b, `document.getElementById("next").disabled`))
	s.Post(t, alice+"/ping", "")
	b.Do(t, says("#changes", "alice turned green"),
		showsCounts("1", "0", "60"))
	require.Equal(t, "user-50", testbrowser.Evaluate[string](t, b, users+"[0]"))
	b.Do(t, clickOn("#first"), shows("alice", "user-23"))
	require.Empty(t, b.Seen())
}

// TestDashboardWithHostileNames checks that names are text.
func TestDashboardWithHostileNames(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	names := []string{
		`<img src=x onerror="window.hacked=1">`, `"><script>window.hacked=1</script>`, `'; rm -rf /; '`, "a/b?c#d&e=f%41+",
		"\u200ftxt.exe", strings.Repeat("w", 256), "javascript:alert(1)", "__proto__", "${LASTSEEN_KEY}",
	}
	b := openDashboard(t, s.URL, "")
	b.Do(t, says("#connection", "Live"))
	for _, name := range names {
		b.Do(t, until(fmt.Sprintf(`(document.getElementById("user").value = %q, true)`, name)),
			clickOn(`#find [value="ping"]`), lists(name, "green", "online now"))
		require.Equal(t, "green", s.Get(t, "/v1/namespaces/chat/users/"+url.PathEscape(name))["status"])
		b.Do(t, until(fmt.Sprintf(
			`[...document.querySelectorAll("#changes li > span")].some(e => e.innerText === %q + " turned green")`, name)))
	}
	b.Do(t, clickIn(names[2], ".row button"), says("#users", "No devices."))
	requireFits(t, b, "with hostile names")
	b.Do(t, typeInto("#user", names[2]), clickOn(`#find [value="find"]`),
		until(`document.querySelectorAll("#users > li").length === 1`))
	const commands = `[...document.querySelectorAll("#commands code")].map(e => e.innerText)`
	for _, command := range testbrowser.Evaluate[[]string](t, b, commands) {
		quoted := strings.Split(command, "'")
		require.Empty(t, quoted[len(quoted)-1], "the URL is quoted: %s", command)
		require.NotContains(t, quoted[len(quoted)-2], " ", command)
	}
	require.Equal(t, "undefined", testbrowser.Evaluate[string](t, b, "typeof hacked"))
	require.Empty(t, b.Seen())
}

// TestDashboardBelowAPath opens the dashboard below a path of a reverse proxy.
func TestDashboardBelowAPath(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	below := belowAPath(t, s)
	b := testbrowser.Open(t, strings.TrimSuffix(below.URL, "/presence"))
	b.Do(t, chromedp.Navigate(below.URL+"/"), lists("alice", "green", "online now"), says("#connection", "Live"))
	require.Equal(t, "curl -sS '"+below.URL+"/v1/namespaces/chat/counts'", testbrowser.Evaluate[string](t, b,
		`[...document.querySelectorAll("#commands code")].map(e => e.innerText).find(text => text.includes("counts"))`))
	require.Empty(t, b.Seen())
}
