package changes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// RunInCalls tests that a feed has who is in a call. Each subtest opens a store of its own.
func RunInCalls(t *testing.T, open kit.Open) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, *calls.Calling)
	}{
		{"InCall", testInCallFeed},
		{"InCall/SweepOrder", testInCallSweepOrder},
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

// testInCallFeed: the beginning and the end of a call are changes, and what moves the end is none.
func testInCallFeed(t *testing.T, c *calls.Calling) {
	f := Begin(t, c.Store)
	f.ping("alice", f.start)
	f.say("alice", availability.Busy)
	f.Read()
	free := with(isHere(f.start, lastseen.Green), availability.Busy)
	for range 2 {
		f.inCall("alice", 60_000)
		f.requireEntries(entry("alice", free, talking(free)))
		for _, until := range []lastseen.Instant{60_000, 60_001, 90_000, 1000} {
			f.inCall("alice", until)
			f.requireEntries()
		}
		require.Equal(t, talking(free), f.published("alice"))
		f.say("alice", availability.Away)
		f.say("alice", availability.Busy)
		talkingAway := with(talking(free), availability.Away)
		f.requireEntries(entry("alice", talking(free), talkingAway), entry("alice", talkingAway, talking(free)))
		f.inCall("alice", 0)
		f.requireEntries(entry("alice", talking(free), free))
		f.inCall("alice", 0)
		f.requireEntries()
	}
	f.inCall("alice", -1)
	f.requireEntries()
	require.Equal(t, free, f.published("alice"), "it has ended")
	f.inCall("alice", 1)
	f.requireEntries(entry("alice", free, talking(free)))
	f.inCall("alice", -1)
	f.requireEntries(entry("alice", talking(free), free))
	f.inCall("alice", 5000)
	f.Read()
	f.device(availability.IdleAt("alice", "a", f.start+1))
	idle := idleSince(with(isHere(f.start+1, lastseen.Green), availability.Busy), f.start-9)
	f.requireEntries(entry("alice", talking(free), talking(idle)))

	kit.Forget(t, c, "alice")
	f.requireEntries(entry("alice", talking(idle), neverSeen()))
	f.ping("alice", f.start)
	f.requireEntries(entry("alice", neverSeen(), isHere(f.start, lastseen.Green)))
}

// testInCallFeedGrey: others do not see that a grey user is in a call.
func testInCallFeedGrey(t *testing.T, c *calls.Calling) {
	f := Begin(t, c.Store)
	f.leave("left", f.start)
	f.ping("old", f.decaysGrey(0))
	f.ping("bob", f.start)
	f.Read()
	for _, user := range []string{"never seen", "left", "old"} {
		f.inCall(user, 60_000)
		f.inCall(user, 0)
		f.inCall(user, 60_000)
	}
	f.requireEntries()
	require.Equal(t, []store.Published{
		neverSeen(), hasLeft(f.start), isHere(f.decaysGrey(0), lastseen.Grey),
	}, f.snapshot("never seen", "left", "old").Users)
	f.ping("never seen", f.start)
	f.ping("left", f.start+1)
	f.ping("old", f.decaysYellow(0))
	green, yellow := isHere(f.start, lastseen.Green), isHere(f.decaysYellow(0), lastseen.Yellow)
	require.Equal(t, map[string][]store.Change{
		"never seen": {entry("never seen", neverSeen(), talking(green))},
		"left":       {entry("left", hasLeft(f.start), talking(isHere(f.start+1, lastseen.Green)))},
		"old":        {entry("old", isHere(0, lastseen.Grey), talking(yellow))},
	}, byUser(f.Read()))

	f.inCall("bob", 60_000)
	f.Read()
	f.leave("bob", f.start+1)
	f.requireEntries(entry("bob", talking(green), hasLeft(f.start+1)))
	f.inCall("bob", 0)
	f.requireEntries()
	f.inCall("old", 0)
	f.Read()
	f.inCall("left", 50)
	f.leave("left", f.start+2)
	f.Read()
	require.Zero(t, f.sweep(100), "the end of a call of a grey user is no change")
}

// testInCallSweepOrder: in one sweep, a user whose status decays and whose call ends goes from what was published to
// what is.
func testInCallSweepOrder(t *testing.T, c *calls.Calling) {
	f := Begin(t, c.Store)
	was := map[string]store.Published{}
	pings := map[string]lastseen.Instant{
		"stays": f.start, "yellow": f.decaysYellow(100), "grey": f.decaysGrey(100),
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
	decays := f.sweep(300)
	entries := f.Read()
	require.Len(t, entries, decays)
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
		require.Equal(t, 1, f.sweep(maxPlayed))
		f.requireEntries(entry("bob", talking(here), here))
	}
	kit.SetInCall(t, c.Store, kit.Namespace, "alice", 0)
	kit.SetInCall(t, c.Store, kit.Namespace, "bob", 0)
	f.requireEntries(entry("alice", talking(here), here))
}
