package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// tabbed is a page's code that watches the user that the query of its URL names.
const tabbed = `
window.client = connect({ url, namespace, ...window.options })
const query = new URLSearchParams(location.search)
window.stop = client.watch(query.getAll("watch"), show)`

// untilFollowed waits until the server is asked to follow so many users in all, by so many connections.
func (s *scripted) untilFollowed(t *testing.T, users, connections int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stats := s.config.Feeds.Stats()
		return stats.Watches == users && stats.Watchers == connections
	}, time.Minute, 10*time.Millisecond, "%d users", users)
}

// openTabs opens a page in two tabs of a browser: the first, which leads, watches Alice, the second Alice and Bob.
func (s *scripted) openTabs(t *testing.T, script string) (leader, follower *browser) {
	t.Helper()
	return s.openTabsIn(t, testbrowser.Open(t, s.pages), script)
}

// openTabsIn is openTabs in a browser with one empty tab.
func (s *scripted) openTabsIn(t *testing.T, leader *browser, script string) (_, follower *browser) {
	t.Helper()
	page := s.addPage("", script)
	leader.Do(t, chromedp.Navigate(page+"?watch=alice"), shows("alice", "grey"))
	follower = leader.NewTab(t)
	follower.Do(t, chromedp.Navigate(page+"?watch=alice&watch=bob"), shows("alice", "grey"), shows("bob", "grey"))
	return leader, follower
}

// TestScriptTabsShare: two tabs share one subscription, and both show each change. When the leader is closed or hidden,
// the other tab goes on: it misses nothing, and knows all the time.
func TestScriptTabsShare(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, leader *browser){
		"closed": func(t *testing.T, leader *browser) { leader.Close(t) },
		"hidden": func(t *testing.T, leader *browser) { leader.Do(t, show("hidden")) },
		"navigates": func(t *testing.T, leader *browser) {
			leader.Do(t, chromedp.Navigate("about:blank"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, scriptOptions{})
			leader, follower := s.openTabs(t, tabbed)
			s.untilFollowed(t, 2, 1)
			require.Equal(t, 1, s.connects())
			s.pingedAgo(t, "alice", 0)
			leader.Do(t, shows("alice", "green"))
			follower.Do(t, shows("alice", "green"))
			require.False(t, testbrowser.Evaluate[bool](t, leader, `"bob" in statuses`))

			end(t, leader)
			s.leaves(t, "alice")
			s.pingedAgo(t, "bob", 0)
			follower.Do(t, shows("alice", "grey"), shows("bob", "green"))
			require.Equal(t, 1, strings.Count(shown(t, follower), "alice unknown"), shown(t, follower))
			s.untilFollowed(t, 2, 1)
			require.Equal(t, 2, s.connects())
		})
	}
}

// TestScriptTabsFollowerEnds: when a tab that follows is closed, its users are no longer watched.
func TestScriptTabsFollowerEnds(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	leader, follower := s.openTabs(t, tabbed)
	s.untilFollowed(t, 2, 1)
	follower.Close(t)
	s.untilFollowed(t, 1, 1)
	s.pingedAgo(t, "alice", 0)
	leader.Do(t, shows("alice", "green"))
}

// TestScriptTabsReturn: a tab that was hidden follows the one that leads now, and does not show what it showed before.
func TestScriptTabsReturn(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	first, second := s.openTabs(t, tabbed)
	first.Do(t, show("hidden"))
	s.pingedAgo(t, "alice", 0)
	second.Do(t, shows("alice", "green"))
	require.Equal(t, "grey", testbrowser.Evaluate[string](t, first, "statuses.alice"))
	first.Do(t, until("(painted = [], true)"), show("visible"), shows("alice", "green"))
	s.leaves(t, "alice")
	first.Do(t, shows("alice", "grey"))
	require.Equal(t, "alice green,alice grey", shown(t, first))
	require.Equal(t, 2, s.connects())
}

// TestScriptTabsOutage: in an outage, the tab that follows shows unknown, as does the one that leads.
func TestScriptTabsOutage(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "bob", 0)
	page := s.addPage("", tabbed)
	leader := testbrowser.Open(t, s.pages)
	leader.Do(t, chromedp.Navigate(page+"?watch=bob"), shows("bob", "green"))
	follower := leader.NewTab(t)
	follower.Do(t, chromedp.Navigate(page+"?watch=bob"), shows("bob", "green"))
	s.faults.setDown(true)
	leader.Do(t, until("passed += 31_000"), shows("bob", "unknown"))
	follower.Do(t, shows("bob", "unknown"))
	s.faults.setDown(false)
	leader.Do(t, shows("bob", "green"))
	follower.Do(t, shows("bob", "green"))
	require.NotContains(t, shown(t, leader)+shown(t, follower), "grey")
}

// TestScriptTabsPoll: one tab looks users up for all.
func TestScriptTabsPoll(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	leader, follower := s.openTabs(t, `window.options = { transport: "http" }`+tabbed)
	require.Len(t, s.lookups(), 2)
	require.Equal(t, `POST /v1/namespaces/chat/lookup {"users":["bob"]}`, s.lookups()[1], "the new one")
	s.pingedAgo(t, "alice", 0)
	follower.Do(t, until("passed += 37_000"))
	leader.Do(t, s.pass(37*time.Second), shows("alice", "green"))
	follower.Do(t, shows("alice", "green"))
	s.untilLookups(t, 3)
}

// TestScriptTabsApart: tabs of different users do not share what they may see, and neither do tabs without locks, as in
// an insecure context.
func TestScriptTabsApart(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"users": `window.options = { user: query.get("watch") + query.getAll("watch").length }`,
		"locks": `Object.defineProperty(navigator, "locks", { value: undefined })`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, scriptOptions{})
			tabbed := strings.Replace(tabbed, "const query = new URLSearchParams(location.search)", "", 1)
			first, second := s.openTabs(t, "const query = new URLSearchParams(location.search)\n"+script+tabbed)
			s.untilFollowed(t, 3, 2)
			require.Equal(t, 2, s.connects())
			s.pingedAgo(t, "alice", 0)
			first.Do(t, shows("alice", "green"))
			second.Do(t, shows("alice", "green"))
		})
	}
}

// TestScriptTabsSilence: a tab that hears nothing from the one that leads shows unknown.
func TestScriptTabsSilence(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	leader, follower := s.openTabs(t, tabbed)
	leader.Do(t, until(`(BroadcastChannel.prototype.postMessage = () => {}, true)`))
	follower.Do(t, until("passed += 31_000"), shows("alice", "unknown"), shows("bob", "unknown"))
	require.Equal(t, "grey", testbrowser.Evaluate[string](t, leader, "statuses.alice"))
}

// TestScriptTabsCached: the browser keeps a page that watches, alone or with other tabs, in its back/forward cache.
// Shown again, the page goes on.
func TestScriptTabsCached(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	leader, follower := s.openTabsIn(t, testbrowser.OpenWithWindows(t, s.pages), tabbed+`
		addEventListener("pageshow", event => { window.restored = event.persisted })`)
	for _, tab := range []*browser{leader, follower} { // the first follows then
		s.load(t, tab, "", "")
		s.pingedAgo(t, "alice", 0)
		tab.Do(t, goBack, until("window.restored"), shows("alice", "green"))
		s.leaves(t, "alice")
		tab.Do(t, shows("alice", "grey"))
	}
	s.untilFollowed(t, 2, 1)
}
