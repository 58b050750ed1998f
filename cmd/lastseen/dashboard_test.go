package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
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
	s := start(t, "--green", "4s", "--yellow", "8s", "--ping-interval", "2s")
	b := openDashboard(t, s.url, "")
	b.do(t, says("#connection", "Live"), showsCounts("0", "0", "0"),
		says("#people-note", "No user was seen here yet."),
		until(recordStatuses), typeInto("#user", "alice"), clickOn(`#find [value="ping"]`),
		lists("alice", "green", "online now"),
		says("#notice", "alice: ping recorded, now green."),
		until(`statuses.join().endsWith("green,yellow,grey")`), lists("alice", "grey", ""), showsCounts("0", "0", "1"))
	require.Regexp(t, "^(unknown,)?green,yellow,grey$", evaluate[string](t, b, "statuses.join()"))
	const changes = `[...document.querySelectorAll("#changes li > span")].map(e => e.innerText).join()`
	b.do(t, until(changes+` === "alice turned grey,alice turned yellow,alice turned green"`))
	require.Contains(t, evaluate[string](t, b, `document.querySelector("#chart svg").ariaLabel`),
		"green between 0 and 1, now 0; yellow between 0 and 1, now 0; grey between 0 and 1, now 1")

	b.do(t, clickIn("alice", ".row button"), clickIn("alice", ".actions button"), lists("alice", "green", "online now"),
		clickIn("alice", ".actions button:last-child"), lists("alice", "grey", "left "), showsCounts("0", "0", "1"),
		until(changes+`.startsWith("alice left,alice turned green")`))
	require.Empty(t, b.seen())
}

// TestDashboardKeepsStateInTheLink checks that a link shows the same as the page that it was copied from, and that the
// browser's button Back works.
func TestDashboardKeepsStateInTheLink(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.post(t, "/v1/namespaces/chat/pings", `{"pings":[{"user":"alice"},{"user":"zoe","at":1000}]}`)
	s.post(t, "/v1/namespaces/game/pings", `{"pings":[{"user":"bob"}]}`)
	b := openDashboard(t, s.url, "#namespace=chat")
	b.do(t, lists("alice", "green", "online now"), lists("zoe", "grey", ""), clickOn(`#filter [value="grey"]`),
		until(`document.querySelectorAll("#users > li").length === 1`))
	link := evaluate[string](t, b, "location.href")
	require.Equal(t, s.url+"/#namespace=chat&status=green%2Cyellow", link)

	b.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(link), lists("alice", "green", "online now"))
	require.Equal(t, "true,true,false",
		evaluate[string](t, b, `[...document.getElementById("filter").elements].map(e => e.checked).join()`))
	require.Equal(t, 1, evaluate[int](t, b, `document.querySelectorAll("#users > li").length`))

	b.do(t, typeInto("#user", "zoe"), clickOn(`#find [value="find"]`), lists("zoe", "grey", ""),
		until(`location.hash.endsWith("&user=zoe")`), clickOn("#everyone"), lists("alice", "green", "online now"),
		clickOn(`#namespaces a[href="#namespace=game"]`), lists("bob", "green", "online now"),
		until(`document.title === "game · lastseen"`), until("history.back() ?? true"),
		lists("alice", "green", "online now"), until(`document.title === "chat · lastseen"`))
	require.Empty(t, b.seen())
}

// TestDashboardSearch looks for exact users: one with devices, one who was never seen, and one who is not valid.
func TestDashboardSearch(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.post(t, alice+"/ping", `{"device":{"id":"phone-1","kind":"mobile","meta":{"app":"2.4"}},"activity":"idle"}`)
	b := openDashboard(t, s.url, "")
	b.do(t, lists("alice", "yellow", "online now"), typeInto("#user", "alice"), chromedp.KeyEvent("\r"), // idle
		until(`document.querySelector("#users tbody")?.innerText.startsWith("phone-1\tmobile\tidle\t")`))
	require.Equal(t, "true", evaluate[string](t, b, `document.querySelector("#users .row button").ariaExpanded`))
	b.do(t, typeInto("#user", "nobody"), chromedp.KeyEvent("\r"), lists("nobody", "grey", "never seen"),
		until(`document.querySelector("#users .details").innerText.includes("No devices.")`))
	b.do(t, typeInto("#user", ".."), chromedp.KeyEvent("\r"),
		says("#notice", ". and .. are not valid"))
	b.do(t, typeInto("#namespace", "other"), chromedp.KeyEvent("\r"),
		says("#title", "other"), showsCounts("0", "0", "0"))
	require.Empty(t, b.seen())
}

// TestDashboardLeavesAUserClosed checks that the only user on the page stays closed when the page is refreshed.
func TestDashboardLeavesAUserClosed(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.post(t, alice+"/ping", "")
	b := openDashboard(t, s.url, "#namespace=chat&user=alice")
	const opened = `document.querySelector("#users .row button").ariaExpanded`
	const lookups = `performance.getEntriesByType("resource").filter(e => e.name.endsWith("/users/alice")).length`
	b.do(t, says("#connection", "Live"), lists("alice", "green", "online now"), until(opened+` === "true"`),
		clickIn("alice", ".row button"), until(fmt.Sprintf("(window.before = %s, true)", lookups)))
	for i, user := range []string{"bob", "carol"} { // the page has shown the first response when it asks again
		s.post(t, "/v1/namespaces/chat/users/"+user+"/ping", "")
		b.do(t, until(fmt.Sprintf("%s > before + %d", lookups, i)))
	}
	require.Equal(t, "false", evaluate[string](t, b, opened))
	require.Empty(t, b.seen())
}

// TestDashboardWithAnInvalidLink checks that a link with an invalid name shows why, and nothing of what was open.
func TestDashboardWithAnInvalidLink(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.post(t, alice+"/ping", "")
	b := openDashboard(t, s.url, "#namespace=.chat")
	const sections = `[...document.querySelectorAll("main > :not(#banner)")].filter(e => e.checkVisibility()).length`
	for _, link := range []string{"#namespace=.chat", "#namespace=chat&user=.."} {
		b.do(t, until(fmt.Sprintf("(location.hash = %q, true)", link)), says("#banner", "not"),
			until(sections+" === 0"))
		require.Empty(t, textOf(t, b, "#connection"))
		require.Zero(t, evaluate[int](t, b, `document.querySelectorAll("#users > li").length`))
		b.do(t, clickOn(`#namespaces a[href="#namespace=chat"]`), lists("alice", "green", "online now"),
			until(`document.getElementById("banner").hidden`), until(sections+" === 5"))
	}
	require.Empty(t, b.seen())
}

// TestDashboardPages checks that the list has pages, that the first one follows what changes, and that another stays as
// it was.
func TestDashboardPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	var pings []string
	for i := range 60 {
		pings = append(pings, fmt.Sprintf(`{"user":"user-%02d","at":%d}`, i, 1000-i))
	}
	s.post(t, "/v1/namespaces/chat/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
	b := openDashboard(t, s.url, "")
	users := `[...document.querySelectorAll("#users > li")].map(e => e.dataset.user)`
	shows := func(first, last string) browserStep {
		return until(fmt.Sprintf(`(users => users[0] === %q && users.at(-1) === %q)(%s)`, first, last, users))
	}
	b.do(t, shows("user-00", "user-24"), clickOn("#next"), shows("user-25", "user-49"), clickOn("#next"),
		shows("user-50", "user-59"))
	require.True(t, evaluate[bool](t, b, `document.getElementById("next").disabled`))
	s.post(t, alice+"/ping", "")
	b.do(t, says("#changes", "alice turned green"),
		showsCounts("1", "0", "60"))
	require.Equal(t, "user-50", evaluate[string](t, b, users+"[0]"))
	b.do(t, clickOn("#first"), shows("alice", "user-23"))
	require.Empty(t, b.seen())
}

// TestDashboardWithHostileNames checks that names are text.
func TestDashboardWithHostileNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	names := []string{
		`<img src=x onerror="window.hacked=1">`, `"><script>window.hacked=1</script>`, `'; rm -rf /; '`, "a/b?c#d&e=f%41+",
		"\u202etxt.exe", strings.Repeat("w", 256), "javascript:alert(1)", "__proto__", "${LASTSEEN_KEY}",
	}
	b := openDashboard(t, s.url, "")
	for _, name := range names {
		b.do(t, until(fmt.Sprintf(`(document.getElementById("user").value = %q, true)`, name)),
			clickOn(`#find [value="ping"]`), lists(name, "green", "online now"))
		require.Equal(t, "green", s.get(t, "/v1/namespaces/chat/users/"+url.PathEscape(name))["status"])
		b.do(t, until(fmt.Sprintf(
			`[...document.querySelectorAll("#changes li > span")].some(e => e.innerText === %q + " turned green")`, name)))
	}
	b.do(t, clickIn(names[2], ".row button"), says("#users", "No devices."))
	requireFits(t, b, "with hostile names")
	b.do(t, typeInto("#user", names[2]), clickOn(`#find [value="find"]`),
		until(`document.querySelectorAll("#users > li").length === 1`))
	const commands = `[...document.querySelectorAll("#commands code")].map(e => e.innerText)`
	for _, command := range evaluate[[]string](t, b, commands) {
		quoted := strings.Split(command, "'")
		require.Empty(t, quoted[len(quoted)-1], "the URL is quoted: %s", command)
		require.NotContains(t, quoted[len(quoted)-2], " ", command)
	}
	require.Equal(t, "undefined", evaluate[string](t, b, "typeof hacked"))
	require.Empty(t, b.seen())
}

// TestDashboardBelowAPath opens the dashboard below a path of a reverse proxy.
func TestDashboardBelowAPath(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.post(t, alice+"/ping", "")
	target, err := url.Parse(s.url)
	require.NoError(t, err)
	proxy := httptest.NewServer(http.StripPrefix("/presence", httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(proxy.CloseClientConnections) // WebSockets are hijacked: closing waits for other connections only
	b := openBrowser(t, proxy.URL)
	b.do(t, chromedp.Navigate(proxy.URL+"/presence/"), lists("alice", "green", "online now"),
		says("#connection", "Live"))
	require.Equal(t, "curl -sS '"+proxy.URL+"/presence/v1/namespaces/chat/counts'", evaluate[string](t, b,
		`[...document.querySelectorAll("#commands code")].map(e => e.innerText).find(text => text.includes("counts"))`))
	require.Empty(t, b.seen())
}
