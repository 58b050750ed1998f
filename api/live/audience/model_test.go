package audience

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// The users of the model. Strangers never have vic among their contacts, but vic may have them.
var (
	friends   = []string{"ann", "bea", "cat", "vic"}
	strangers = []string{"sam", "tom"}
)

// seenStep is one thing that happens. Numbers select by their remainders.
type seenStep struct {
	what        string
	user, other int
	client      int
	n           int
}

// seenSteps draws what happens.
func seenSteps(t *rapid.T) []seenStep {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) seenStep {
		return seenStep{
			what: rapid.SampledFrom([]string{
				"ping", "ping", "leave", "add", "add", "remove", "own", "forget", "poll", "next", "next", "next",
				"resume", "change", "sleep", "fail", "busy",
			}).Draw(t, "what"),
			user: rapid.IntRange(0, 9).Draw(t, "user"), other: rapid.IntRange(0, 9).Draw(t, "other"),
			client: rapid.IntRange(0, 9).Draw(t, "client"), n: rapid.IntRange(1, 4).Draw(t, "n"),
		}
	}), 1, 60).Draw(t, "steps")
}

// seenClient is a client of vic, which applies what it is told.
type seenClient struct {
	watcher   *Watcher
	users     []string // none for everyone
	everyone  bool
	server    int
	positions []store.Position
	knows     map[string]string
	begun     bool     // the watcher has returned a batch
	log       []string // of what it was told, without times
}

// seenModel plays steps. It returns what is wrong, for rapid to find the smallest example.
type seenModel struct {
	*fixture
	clients   []*seenClient
	forgotten map[string]bool // users, at some time
	wrong     string
}

func (m *seenModel) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// connect has a client connect, after its positions if it has any.
func (m *seenModel) connect(c *seenClient) {
	if c.watcher != nil {
		c.watcher.Close()
	}
	fails := m.store.Fails.Swap(false)
	defer m.store.Fails.Store(fails)
	q := feed.Query{Users: c.users, Everyone: c.everyone, After: c.positions}
	var err error
	c.begun = false
	c.watcher, err = m.open(c.server, "", vic(), q, free)
	require.NoError(m.t, err)
}

// take applies a batch.
func (m *seenModel) take(c *seenClient, b feed.Batch) {
	if len(b.Positions) != 1 {
		m.fail("positions %v", b.Positions)
	}
	c.positions, c.begun = b.Positions, true
	slices.SortFunc(b.Users, func(a, b feed.Update) int { return strings.Compare(a.User, b.User) }) // in no order
	if c.log = append(c.log, fmt.Sprint(told(b), b.More, widths(b.Positions))); b.Snapshot || b.Reset {
		clear(c.knows)
	}
	for _, u := range b.Users {
		shown := shownAs(u.Published)
		if was := c.knows[u.User]; was == shown && !m.forgotten[u.User] { // who is told anew
			m.fail("%s is told twice as %s", u.User, shown)
		}
		if shown != "never" && !m.sees("vic", u.User) {
			m.fail("told %s %s, who is not visible", u.User, shown)
		}
		c.knows[u.User] = shown
	}
}

// widths returns what a client can learn from sealed positions: how long they are.
func widths(positions []store.Position) (text string) {
	for _, position := range positions {
		text += fmt.Sprint(" ", len(position))
	}
	return text
}

// shown returns what vic can see of users now.
func (m *seenModel) shown(users []string) map[string]string {
	states, details, err := m.store.Describe(m.t.Context(), "chat", users)
	require.NoError(m.t, err)
	now := lastseen.InstantOf(time.Now())
	shown := map[string]string{}
	for k, user := range users {
		shown[user] = "never"
		if m.sees("vic", user) {
			shown[user] = shownAs(store.Publish(thresholds(), states[k], details[user], now))
		}
	}
	return shown
}

// wait has a client wait for a batch.
func (m *seenModel) wait(c *seenClient, limit int, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(m.t.Context(), d)
	defer cancel()
	b, err := m.await(ctx, c.watcher, limit)
	if err == nil {
		m.take(c, b)
	}
	return err == nil
}

// play does a step. Those of a busy world have no effect in a quiet one. Each takes the same time in both, so that
// users act at the same moments, whenever a client got its batch.
func (m *seenModel) play(s seenStep, busy bool) {
	end := time.Now().Add(4 * time.Second)
	c := m.clients[s.client%len(m.clients)]
	user, other := friends[s.user%len(friends)], friends[s.other%len(friends)]
	time.Sleep(clientsAct)
	if slices.Contains([]string{"ping", "leave", "forget"}, s.what) {
		time.Sleep(usersAct - clientsAct)
	}
	switch s.what {
	case "ping":
		m.ping(user)
	case "leave":
		m.leave(user)
	case "add":
		if user != "vic" {
			m.know(user, "vic", "x")
		}
	case "remove":
		if user != "vic" {
			m.know(user, "x")
		}
	case "own":
		m.know("vic", slices.Concat([]string{"ann", "bea", "cat"}[:s.n-1], strangers[:s.other%3])...)
	case "forget":
		m.forgotten[user] = true
		m.forget(user)
	case "poll":
		if !m.store.Fails.Load() { // then it fails if contacts are due
			b, err := c.watcher.Poll(m.t.Context(), s.n)
			require.NoError(m.t, err)
			m.take(c, b)
		}
	case "next":
		m.wait(c, s.n, time.Second)
	case "resume":
		c.server = s.n % 2
		m.connect(c)
	case "change":
		if !c.everyone && !m.store.Fails.Load() { // whether it fails depends on whether contacts are due
			m.change(c, user, other)
		}
	case "sleep":
		end = end.Add(time.Duration(s.user*s.user) * time.Second)
	case "fail":
		m.store.Fails.Store(s.n == 1)
	case "busy":
		if busy {
			m.disturb(s)
		}
	}
	time.Sleep(time.Until(end))
	synctest.Wait()
}

// When clients and users act, after a full second. Statuses change a minute after usersAct, and watermarks advance at
// the next full second. What a client did at one of these moments would have that or not.
const (
	clientsAct = 189 * time.Millisecond
	usersAct   = 377 * time.Millisecond
)

// disturb has strangers do something.
func (m *seenModel) disturb(s seenStep) {
	stranger, other := strangers[s.user%2], strangers[s.other%2]
	switch s.n {
	case 1:
		m.ping(stranger)
	case 2:
		m.leave(stranger)
	case 3:
		m.know(stranger, "ann", "y", fmt.Sprint(other, "2"))
	case 4:
		m.forget(stranger)
	}
}

func (m *seenModel) change(c *seenClient, add, remove string) {
	if !c.begun {
		m.take(c, m.poll(c.watcher))
	}
	b, err := c.watcher.Change(m.t.Context(), feed.Change{Add: []string{add}, Remove: []string{remove}})
	require.NoError(m.t, err)
	c.users = slices.DeleteFunc(c.users, func(user string) bool { return user == add || user == remove })
	delete(c.knows, remove)
	delete(c.knows, add)
	if c.users = append(c.users, add); b.Snapshot || b.Reset {
		clear(c.knows)
	}
	b.Snapshot, b.Reset = false, false
	m.take(c, b)
}

// finish checks that each client ends with what there is to see.
func (m *seenModel) finish() {
	m.store.Fails.Store(false)
	time.Sleep(clientsAct)
	for k, c := range m.clients {
		know, want := m.compare(c)
		for range 5 {
			if maps.Equal(know, want) {
				break
			}
			know, want = m.compare(c) // time has passed, and a status with it
		}
		if !maps.Equal(know, want) {
			m.fail("client %d knows %v, not %v", k, know, want)
		}
		b, ok := m.ticks(c.watcher)
		if !ok {
			m.fail("no tick for client %d", k)
		}
		c.log = append(c.log, widths(b.Positions))
	}
}

// compare returns what a client knows after it was told everything, and what there is to see.
func (m *seenModel) compare(c *seenClient) (know, want map[string]string) {
	for m.wait(c, 2, 3*time.Second) {
	}
	users := c.users
	if c.everyone {
		users = m.list()
	}
	know, want = maps.Clone(c.knows), m.shown(users)
	for _, shown := range []map[string]string{know, want} {
		maps.DeleteFunc(shown, func(_, shown string) bool { return shown == "never" })
	}
	return know, want
}

// playSeen plays steps in a new world, and returns what the clients were told.
func playSeen(t *testing.T, rt *rapid.T, steps []seenStep, busy bool) (logs [][]string) {
	t.Helper()
	wrong := ""
	inFixture(t, func(_ *testing.T, w *fixture) {
		m := &seenModel{fixture: w, forgotten: map[string]bool{}}
		for k, users := range [][]string{{"ann", "sam", "vic"}, slices.Concat(friends, strangers), nil, nil} {
			c := &seenClient{users: users, everyone: users == nil, server: k % 2, knows: map[string]string{}}
			m.connect(c)
			m.clients = append(m.clients, c)
		}
		for _, s := range steps {
			m.play(s, busy)
		}
		m.finish()
		wrong = m.wrong
		for _, c := range m.clients {
			c.watcher.Close()
			logs = append(logs, c.log)
		}
	})
	if wrong != "" {
		rt.Fatal(wrong)
	}
	return logs
}

// TestVisibleModel plays at random with contacts, presences, failures and clients, on two servers. A client that
// applies what it is told ends with what the viewer can look up, and is never told of a user who is not visible at that
// moment. In a world where strangers do something besides, clients are told
// exactly the same, with cursors of the same width.
func TestVisibleModel(t *testing.T) {
	t.Parallel()
	for range 5 { // a walk takes milliseconds
		rapid.Check(t, func(rt *rapid.T) {
			steps := seenSteps(rt)
			var quiet, busy [][]string
			for range 10 { // what happens at the same moment has no order: a difference has to show each time
				quiet, busy = playSeen(t, rt, steps, false), playSeen(t, rt, steps, true)
				if slices.EqualFunc(quiet, busy, slices.Equal[[]string]) {
					return
				}
			}
			rt.Fatalf("%q\n%q", quiet, busy)
		})
	}
}
