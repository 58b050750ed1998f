package changes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// RunInCalls tests that a feed has who is in a call. Each subtest opens its own store.
func RunInCalls(t *testing.T, open kit.Open) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, *calls.Calling)
	}{
		{"InCall/AdvanceOrder", testInCallAdvanceOrder},
		{"InCall/Grey", testInCallFeedGrey},
		{"InCall/Before", testInCallBeforeFeed},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, calls.NewCalling(t, open(t))) })
	}
}

// talking returns a published presence of a user who is in a call.
func talking(p store.Published) store.Published {
	p.InCallUntil = lastseen.MaxInstant
	return p
}

// inCall records until when a user is in a call, in milliseconds after the start of the feed; 0 for not.
func (f *feed) inCall(user string, after lastseen.Instant) {
	until := lastseen.Instant(0)
	if after != 0 {
		until = f.start + after
	}
	kit.SetInCall(f.t, f.s, f.namespace, user, until)
}

// testInCallAdvanceOrder: in one advance, a user whose status changes with time and whose call ends goes from what was
// published to what is.
func testInCallAdvanceOrder(t *testing.T, c *calls.Calling) {
	f := Begin(t, c.Store)
	was := map[string]store.Published{}
	pings := map[string]lastseen.Instant{
		"stays": f.start, "yellow": f.yellowAt(100), "grey": f.greyAt(100),
	}
	for name, at := range pings {
		for _, end := range []lastseen.Instant{50, 100, 150} {
			user := name + string(rune('0'+end/50))
			f.ping(user, at)
			f.inCall(user, end)
			was[user] = f.published(user)
			require.Equal(t, lastseen.MaxInstant, was[user].InCallUntil)
		}
	}
	f.Read()
	transitions := f.advance(300)
	entries := f.Read()
	require.Len(t, entries, transitions)
	chains := byUser(entries)
	for user, p := range was {
		chain := chains[user]
		requireChain(t, p, chain)
		last := chain[len(chain)-1].Published
		require.Zero(t, last.Details, user)
		require.Equal(t, last, f.published(user))
		status := map[byte]lastseen.Status{'s': lastseen.Green, 'y': lastseen.Yellow, 'g': lastseen.Grey}[user[0]]
		require.Equal(t, isHere(p.At, status), last)
	}
	require.Len(t, chains, len(was))
}

// testInCallFeedGrey: others do not see that a grey user is in a call.
func testInCallFeedGrey(t *testing.T, c *calls.Calling) {
	f := Begin(t, c.Store)
	f.leave("left", f.start)
	f.inCall("left", 50)
	f.requireEntries(entry("left", neverSeen(), hasLeft(f.start)))
	require.Equal(t, hasLeft(f.start), f.published("left"))
	require.Zero(t, f.advance(100), "the end of a call of a grey user is no change")
}

// testInCallBeforeFeed: a feed publishes who is in a call when it begins.
func testInCallBeforeFeed(t *testing.T, c *calls.Calling) {
	start := kit.Now(t, c)
	kit.Ping(t, c, "alice", start)
	kit.Ping(t, c, "bob", start)
	ends := start + playAhead + maxPlayed/2 + 1000
	kit.SetInCall(t, c.Store, kit.Namespace, "alice", start+60*kit.Minute)
	kit.SetInCall(t, c.Store, kit.Namespace, "bob", ends)
	f := Begin(t, c.Store)
	here := isHere(start, lastseen.Green)
	require.Equal(t, talking(here), f.published("alice"))
	if f.start < ends {
		require.Equal(t, talking(here), f.published("bob"))
		require.Equal(t, 1, f.advance(maxPlayed))
		f.requireEntries(entry("bob", talking(here), here))
	}
	kit.SetInCall(t, c.Store, kit.Namespace, "alice", 0)
	kit.SetInCall(t, c.Store, kit.Namespace, "bob", 0)
	f.requireEntries(entry("alice", talking(here), here))
}
