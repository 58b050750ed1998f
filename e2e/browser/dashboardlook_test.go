package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// startWithPeople starts a server with users of each status in several namespaces; ada has two devices.
func startWithPeople(t *testing.T, args ...string) *testserver.Server {
	t.Helper()
	s := testserver.Start(t, args...)
	names := strings.Fields("ben carla dmitri elif farah goran hana ines jonas kofi lena mateo nadia omar priya quinn " +
		"rosa sven tara uma viktor wen ximena yusuf zoe akira bruno chloe dana emil")
	pingAll(t, s, "chat", names[:9], 2*time.Second, 6*time.Second)
	pingAll(t, s, "chat", names[9:15], 80*time.Second, 31*time.Second)
	pingAll(t, s, "chat", names[15:], 7*time.Minute, 1000*time.Second)
	pingAll(t, s, "game-lobby", names[3:12], time.Minute, 9*time.Second)
	pingAll(t, s, "support-desk", names[:4], 3*time.Hour, time.Minute)
	for _, body := range []string{
		`{"device":{"id":"tab-7f2c","kind":"web"}}`, `{"device":{"id":"phone","kind":"mobile"},"activity":"idle"}`,
	} {
		s.Post(t, "/v1/namespaces/chat/users/ada/ping", body)
	}
	return s
}

// pingAll pings as users: the first one some time ago, and each other one a step before.
func pingAll(t *testing.T, s *testserver.Server, namespace string, names []string, ago, step time.Duration) {
	t.Helper()
	now := time.Now()
	var pings []string
	for i, name := range names {
		at := now.Add(-ago - time.Duration(i)*step).UTC().Format("2006-01-02T15:04:05.000Z")
		pings = append(pings, fmt.Sprintf(`{"user":%q,"at":%q}`, name, at))
	}
	s.Post(t, "/v1/namespaces/"+namespace+"/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
}

// TestDashboardIsReadable checks that nothing is cut off on a laptop and on a small phone, and that all text has the
// contrast of WCAG AA, in light and dark.
func TestDashboardIsReadable(t *testing.T) {
	t.Parallel()
	s := startWithPeople(t)
	b := openDashboard(t, s.URL, "")
	b.Do(t, lists("ada", "green", "online now"), clickIn("ada", ".row button"),
		until(`document.querySelectorAll("#users tbody tr").length === 2`), typeInto("#user", "eve"),
		clickOn(`#find [value="ping"]`), says("#changes", "eve turned green"),
		until(`(document.getElementById("signin").hidden = document.getElementById("banner").hidden = false, true)`),
		until(`(document.getElementById("banner").textContent = "The server cannot be reached.", true)`))
	for _, width := range []int64{1280, 360} {
		for _, scheme := range []string{"light", "dark"} {
			b.Do(t, chromedp.EmulateViewport(width, 740), testbrowser.PrefersScheme(scheme), testbrowser.Settled)
			what := fmt.Sprintf("%s, %d pixels wide", scheme, width)
			require.Equal(t, scheme == "dark", testbrowser.Measure[float64](t, b, "background()") < 0.03, what)
			require.Empty(t, testbrowser.Measure[[]string](t, b, "faint(4.5)"), what)
			requireFits(t, b, what)
		}
	}
	require.Empty(t, b.Seen())
}

// TestDashboardByKeyboard walks through the dashboard with the key Tab, and opens a user with Enter. What has the focus
// is marked.
func TestDashboardByKeyboard(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	b := openDashboard(t, s.URL, "")
	b.Do(t, lists("alice", "green", "online now"), until(`document.querySelectorAll("#commands li").length === 3`))
	const focused = `(e => e === document.body ? "" : e.ariaLabel || e.innerText.replace(/\s+/g, " ").trim() ||
		e.labels?.[0].innerText.trim() || e.id)(document.activeElement)`
	var walked []string
	for {
		b.Do(t, chromedp.KeyEvent("\t"))
		name := testbrowser.Evaluate[string](t, b, focused)
		if name == "" || len(walked) > 40 {
			break
		}
		require.Equal(t, "solid", testbrowser.Evaluate[string](t, b, "getComputedStyle(document.activeElement).outlineStyle"), name)
		walked = append(walked, name)
	}
	require.Len(t, walked, 23, "%q", walked)
	require.Regexp(t, `^chat (\d+s ago|just now)$`, walked[6])
	walked[6] = "chat"
	require.Equal(t, []string{
		"lastseen", "Guides", "API docs", "Errors", "Open by name", "Open", "chat", "Show grey", "green", "yellow",
		"grey", "User ID", "Find", "Send ping", "Send leave", "alice", "Pause",
		"Recently seen", "Copy: Recently seen", "Counts", "Copy: Counts", "Changes", "Copy: Changes",
	}, walked)

	b.Do(t, until(rowOf("alice")+`.querySelector("button").focus() ?? true`), chromedp.KeyEvent("\r"),
		until(rowOf("alice")+`.querySelector(".details").innerText.includes("No devices.")`))
	require.Empty(t, b.Seen())
}

// axNode is what assistive technology is told about an element.
type axNode struct{ role, name string }

// accessible returns what assistive technology is told about the page.
func accessible(ctx context.Context) (all []axNode, err error) {
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		return nil, err
	}
	for _, node := range tree.Nodes {
		if !node.Ignored && node.Role != nil {
			all = append(all, axNode{axText(node.Role), axText(node.Name)})
		}
	}
	return all, nil
}

func axText(v *accessibility.Value) (text string) {
	if v != nil {
		_ = json.Unmarshal(v.Value, &text) // what is not text is ""
	}
	return text
}

// TestDashboardForScreenReaders checks the landmarks of the page, and that every control and image has a name.
func TestDashboardForScreenReaders(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	b := openDashboard(t, s.URL, "")
	b.Do(t, lists("alice", "green", "online now"), showsCounts("1", "0", "0"))
	nodes, err := accessible(b.Ctx)
	require.NoError(t, err)
	for _, node := range []axNode{
		{"banner", ""},
		{"navigation", "Site"},
		{"complementary", "Namespaces"},
		{"main", ""},
		{"heading", "chat"},
		{"region", "Users by status"},
		{"region", "Recently seen"},
		{"region", "Changes"},
		{"region", "The same with curl"},
		{"image", "alice, online"},
		{"textbox", "User ID"},
		{"textbox", "Open by name"},
		{"group", "Statuses to list"},
		{"button", "alice"},
		{"checkbox", "Show grey"},
	} {
		require.Contains(t, nodes, node)
	}
	charts := 0
	for _, node := range nodes {
		switch node.role {
		case "button", "link", "checkbox", "textbox", "image":
			require.NotEmpty(t, node.name, node.role)
		}
		if strings.HasPrefix(node.name, "Users by status over the last ") && strings.Contains(node.name, "green between") {
			charts++
		}
	}
	require.Equal(t, 1, charts, "the chart has a text")
	require.Empty(t, b.Seen())
}

// TestDashboardPicture takes the picture of the dashboard for the guides. With -update it writes the picture, which
// takes a minute: the chart needs some minutes, most of which the page only believes to have passed.
func TestDashboardPicture(t *testing.T) {
	t.Parallel()
	s := startWithPeople(t)
	steps := 2
	if *testbrowser.Update {
		steps = 16
	}
	b := testbrowser.Open(t, s.URL)
	withPageClock(t, b)
	b.Do(t, chromedp.EmulateViewport(1280, 800), testbrowser.PrefersScheme("light"),
		chromedp.Navigate(s.URL+"/#namespace=chat"),
		lists("ada", "green", "online now"), clickIn("ada", ".row button"))
	names := strings.Fields("dana kofi ben omar wen tara elif emil priya mina kofi luca gita hugo omar sven")
	for i, name := range names[:steps] {
		action := []string{"/ping", "/ping", "/leave", "/ping"}[i%4]
		s.Post(t, "/v1/namespaces/chat/users/"+name+action, "")
		b.Do(t, until(fmt.Sprintf(`document.querySelector("#changes bdi")?.innerText === %q`, name)))
		require.Eventually(t, func() bool {
			shown := textOf(t, b, `[data-count="green"]`)
			return shown == fmt.Sprint(s.Get(t, "/v1/namespaces/chat/counts")["green"])
		}, time.Minute, 50*time.Millisecond)
		b.Do(t, until("(passed += 13_000, true)"))
	}
	s.Post(t, "/v1/namespaces/chat/users/ada/ping", `{"device":{"id":"tab-7f2c","kind":"web"}}`)
	b.Do(t, until(`document.querySelector("#users > li").dataset.user === "ada"`))
	b.Do(t, until("(document.activeElement.blur(), scrollTo(0, 0), true)"), testbrowser.Settled)
	picture := testbrowser.Picture(t, b)
	require.Empty(t, b.Seen())
	require.Less(t, len(picture), 150<<10)
	decoded, err := png.DecodeConfig(bytes.NewReader(picture))
	require.NoError(t, err)
	require.Equal(t, [2]int{1280, 800}, [2]int{decoded.Width, decoded.Height})
	if *testbrowser.Update {
		testbrowser.SavePicture(t, "dashboard.png", picture)
	}
}
