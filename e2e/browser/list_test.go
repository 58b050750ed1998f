package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// list returns the HTML of a list with attributes.
func (s *scripted) list(attributes ...string) string {
	return fmt.Sprintf(`<presence-list url=%q namespace="chat" %s><b slot="empty">Nobody is here</b></presence-list>`,
		s.server.URL, strings.Join(attributes, " "))
}

// rows is the text of the rows of the list, and shadow its shadow root.
const (
	shadow = `document.querySelector("presence-list").shadowRoot`
	rows   = `[...` + shadow + `.querySelectorAll("li")].map(row =>
		[...row.children].map(cell => cell.textContent).filter(Boolean).join(": ")).join("; ")`
)

func untilRows(want ...string) step {
	return until(fmt.Sprintf("%s == %q", rows, strings.Join(want, "; ")))
}

// slot is the slot of a list with a name. Rarely lets the elements of a page ask the server once an hour only.
func slot(name string) string { return fmt.Sprintf("%s.querySelector('slot[name=%s]')", shadow, name) }

const rarely = `connect({ url, namespace, interval: 3600_000 });`

// quickly makes the elements of a page ask the server as often as they can.
const quickly = `connect({ url, namespace, interval: 5000 });`

// saysUnknown waits until the list says that nothing is known.
func saysUnknown() step {
	return until(slot("empty") + ".hidden && !" + slot("unknown") + ".hidden && " + slot("unknown") +
		".textContent == 'status unknown'")
}

// answerUnavailable answers all requests as during an outage.
func (s *scripted) answerUnavailable() {
	s.setAnswer(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
}

// TestListShows: the list has a dot, a name and a text for each user, newest first, for screen readers, too.
func TestListShows(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	s.pingedAgo(t, "<b>eve</b>", 200*time.Minute)
	b := s.open(t, s.list(), "")
	b.Do(t, untilRows("dave: last seen just now", "alice: online", "bob: last seen 3 minutes ago",
		"carol: last seen 2 hours ago", "<b>eve</b>: last seen 3 hours ago"))
	require.Equal(t, []string{
		"dave, last seen just now", "alice, online", "bob, last seen 3 minutes ago", "carol, last seen 2 hours ago",
		"<b>eve</b>, last seen 3 hours ago",
	}, spoken(t, b, "image"))
	require.Len(t, spoken(t, b, "list"), 1)
	require.Len(t, spoken(t, b, "listitem"), 5)
	require.Empty(t, spoken(t, b, "button"), "there are no more")
	require.Empty(t, testbrowser.Measure[[]string](t, b, "faint(4.5)"))
	require.Empty(t, s.complaints(b))
}

// TestListFollows: who comes appears at once, also in a namespace that did not exist, and who no longer has a status
// that is asked for goes.
func TestListFollows(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, s.list(`status="green, yellow"`), rarely)
	b.Do(t, until("!"+slot("empty")+".hidden"))
	s.crowd(t)
	b.Do(t, untilRows("alice: online", "bob: last seen 3 minutes ago"), until(slot("empty")+".hidden"),
		until("(window.kept = "+shadow+".querySelector('li'))"))
	s.pingedAgo(t, "bob", 0)
	b.Do(t, untilRows("bob: online", "alice: online"))
	require.True(t, testbrowser.Evaluate[bool](t, b, shadow+".querySelectorAll('li')[1] == kept"), "rows that stay are kept")
	s.leaves(t, "bob")
	b.Do(t, untilRows("alice: online"))
	s.leaves(t, "alice")
	b.Do(t, untilRows(), until("!"+slot("empty")+".hidden"))
	require.Empty(t, s.complaints(b))
}

// TestListPages: a button shows more users, by keyboard, too.
func TestListPages(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	for i := range 5 {
		s.pingedAgo(t, fmt.Sprintf("user-%d", i), time.Duration(i)*time.Second)
	}
	b := s.open(t, strings.Replace(s.list(`limit="2"`), "<b", `<i slot="more">Older</i><b`, 1), `
		document.querySelector("presence-list").label = user => user.toUpperCase()`)
	b.Do(t, untilRows("USER-0: online", "USER-1: online"))
	require.Equal(t, []string{"Older"}, spoken(t, b, "button"))
	b.Do(t, chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"),
		untilRows("USER-0: online", "USER-1: online", "USER-2: online", "USER-3: online"),
		chromedp.KeyEvent("\r"), until(rows+`.endsWith("USER-4: online")`),
		until(shadow+`.querySelector("button").hidden`))
}

// TestListStaysFull: a list with more users than rows drops the last one for who comes, and asks for another one when
// one goes.
func TestListStaysFull(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	for i := range 4 {
		s.pingedAgo(t, fmt.Sprintf("user-%d", i), time.Duration(i)*time.Second)
	}
	b := s.open(t, s.list(`limit="2" status="green"`), rarely)
	b.Do(t, untilRows("user-0: online", "user-1: online"))
	s.pingedAgo(t, "dave", 0)
	b.Do(t, untilRows("dave: online", "user-0: online"))
	s.leaves(t, "dave")
	b.Do(t, untilRows("user-0: online", "user-1: online"))
}

// TestListWithoutWebSocket: a list asks once an interval if it cannot follow.
func TestListWithoutWebSocket(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.refuseSockets(http.StatusBadRequest)
	b := s.open(t, s.list(`status="green"`), quickly)
	b.Do(t, until("!"+slot("empty")+".hidden"))
	s.pingedAgo(t, "alice", 0)
	b.Do(t, untilRows("alice: online"))
	s.leaves(t, "alice")
	b.Do(t, untilRows(), until(slot("unknown")+".hidden"))
}

// TestListChanges: a list follows its attributes, and what it showed before is gone at once.
func TestListChanges(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	b := s.open(t, s.list(`status="grey"`), `window.list = document.querySelector("presence-list")`)
	b.Do(t, untilRows("dave: last seen just now", "carol: last seen 2 hours ago"),
		until(`list.setAttribute("status", "green") ?? true`), untilRows("alice: online"),
		until(`list.setAttribute("namespace", "empty") ?? true`), untilRows(),
		until(slot("empty")+`.assignedElements()[0].checkVisibility()`),
		until(`list.removeAttribute("namespace") ?? true`),
		until(slot("empty")+".hidden"))
	require.Empty(t, s.called("GET /v1/namespaces/null"), "a list without a namespace asks nothing")
}

// TestListUnknown: while the server cannot be reached, the rows stay and their dots say that nothing is known. So does
// a list that was never answered, or was empty.
func TestListUnknown(t *testing.T) {
	s := newScripted(t, scriptOptions{thresholds: seconds(3600, 7200)}) // the test takes a minute
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, s.list(), quickly)
	b.Do(t, untilRows("alice: online"))
	s.answerUnavailable()
	s.cut()
	lists := func() int { return len(s.called("GET /v1/namespaces/chat/users")) }
	asked := lists()
	require.Eventually(t, func() bool { return lists() >= asked+2 }, time.Minute, 10*time.Millisecond)
	b.Do(t, until("(passed += 61_000, true)"), untilRows("alice: status unknown"))
	tab := b.NewTab(t)
	s.load(t, tab, s.list(), quickly)
	asked = lists()
	require.Eventually(t, func() bool { return lists() >= asked+2 }, time.Minute, 10*time.Millisecond)
	tab.Do(t, saysUnknown())
	s.setAnswer(nil)
	tab.Do(t, untilRows("alice: online"))
}

// TestListUnknownNobody: half a minute after its connection was lost, a list no longer says that nobody is here.
func TestListUnknownNobody(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, s.list(), rarely)
	b.Do(t, until("!"+slot("empty")+".hidden"))
	require.Eventually(t, func() bool { return s.connects() > 0 }, time.Minute, 10*time.Millisecond)
	s.answerUnavailable()
	s.cut()
	b.Do(t, until("(passed += 31_000, true)"), saysUnknown())
	s.setAnswer(nil)
	b.Do(t, until("!"+slot("empty")+".hidden && "+slot("unknown")+".hidden"))
}

// TestListSignsIn: a list that was there before the page had a token asks again when there is one.
func TestListSignsIn(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.crowd(t)
	s.issueTokens(t, "alice", time.Hour)
	b := s.open(t, s.list(`status="green"`), rarely)
	lists := func() int { return len(s.called("GET /v1/namespaces/chat/users")) }
	require.Eventually(t, func() bool { return lists() == 1 }, time.Minute, 10*time.Millisecond)
	b.Do(t, until("connect({ url, namespace, token })"), untilRows("alice: online"))
	require.LessOrEqual(t, lists(), 3, "once at once, and once on the connection")
}
