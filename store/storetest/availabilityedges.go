package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testInvisibleAndClocksAhead: a ping that arrives in the hidden time is hidden, also if its time is after the end.
func testInvisibleAndClocksAhead(t *testing.T, s store.Store) {
	start := now(t, s)
	end := start + 60*minute
	sayAt(t, s, "alice", until(end, invisible), start)
	sayAt(t, s, "bob", invisible, start)
	for _, user := range []string{"alice", "bob"} {
		years := start.Add(20 * 365 * 24 * time.Hour)
		for _, at := range []lastseen.Instant{start + 3000, end, end + 1, years, lastseen.MaxInstant} {
			require.Equal(t, left(start), ping(t, s, user, at))
			require.Equal(t, left(start), leave(t, s, user, at))
			require.Equal(t, left(start), recordOne(t, s, on(user, "a", at)))
		}
		requireDevices(t, s, user)
	}
	near := now(t, s) + 3000 // carol's hidden time ends in less than MaxAhead
	sayAt(t, s, "carol", until(near, invisible), start)
	state := ping(t, s, "carol", near+500)
	if now(t, s) < near {
		require.Equal(t, left(start), state, "it arrived before the end")
	}
}

// testInvisibleLate: pings from the hidden time stay hidden for weeks after it, whatever others do meanwhile.
func testInvisibleLate(t *testing.T, s store.Store) {
	const day = 24 * 60 * minute
	start := now(t, s)
	first, end := start-32*day, start.Add(-store.HiddenKept)+10*minute
	sayAt(t, s, "alice", until(end, invisible), first)
	sayAt(t, s, "bob", invisible, first)
	sayAt(t, s, "bob", busy, end)
	for i := range 150 { // each of them may delete what is old
		user := fmt.Sprint("user", i)
		sayAt(t, s, user, until(end+lastseen.Instant(i), invisible), first)
		sayAt(t, s, user, nothing, start)
	}
	ping(t, s, "other", start)
	for _, all := range []bool{false, true} {
		trim(t, s, ns, start-minute, all)
	}
	require.Equal(t, []string{"other"}, remaining(t, s))
	for _, user := range []string{"alice", "bob", "user0", "user149"} {
		for _, at := range []lastseen.Instant{first, first + 1, end - 1} {
			require.Zero(t, ping(t, s, user, at), "%s: hidden", user)
			require.Zero(t, leave(t, s, user, at), "%s: hidden", user)
			require.Zero(t, recordOne(t, s, on(user, "a", at)), "%s: hidden", user)
		}
		require.Equal(t, here(start), ping(t, s, user, start))
	}
}

// testIdle: a user is idle who uses none of the devices that are live, since they stopped using the last one.
func testIdle(t *testing.T, s store.Store) {
	idle := func(id string, at, since lastseen.Instant) store.DeviceSighting {
		d := on("alice", id, base+at)
		if since != 0 {
			d.Idle = base + since
		}
		return d
	}
	for i, step := range []struct {
		sighting store.DeviceSighting
		want     lastseen.Instant
	}{
		{idle("a", 100, 0), 0},
		{idle("a", 200, 150), 150},
		{idle("a", 300, 300), 150}, // still idle
		{idle("b", 310, 0), 0},     // another device is used
		{idle("a", 320, 320), 0},
		{idle("b", 330, 325), 325}, // the later of both
		{idle("b", 340, 0), 0},
		{idle("a", 335, 0), 0},
		{idle("a", 350, 345), 0},
		{idle("b", 351, 348), 348},
		{idle("c", 20, 10), 348},
		{idle("b", 349, 0), 348}, // late
		{idle("a", 360, 0), 0},
	} {
		recordOne(t, s, step.sighting)
		want := map[string]store.Details{}
		if step.want != 0 {
			want["alice"] = store.Details{IdleSince: base + step.want}
		}
		require.Equal(t, want, details(t, s, "alice", "bob"), "%d: %+v", i, step.sighting)
	}
}

// idleAt is a device that a user has not used for 10 ms.
func idleAt(user, id string, at lastseen.Instant) store.DeviceSighting {
	d := on(user, id, at)
	d.Idle = at - 10
	return d
}

// testIdleGone: devices that said goodbye, or were not heard for long, do not make a user idle.
func testIdleGone(t *testing.T, s store.Store) {
	since := func(user string) lastseen.Instant { return details(t, s, user)[user].IdleSince }
	record(t, s, on("alice", "a", base), idleAt("alice", "b", base+1))
	require.Zero(t, since("alice"))
	record(t, s, bye("alice", "a", base+2))
	require.Equal(t, base-9, since("alice"), "the other device is idle")
	record(t, s, idleAt("alice", "c", base+20), bye("alice", "b", base+21))
	require.Equal(t, base+10, since("alice"))
	record(t, s, bye("alice", "c", base+22))
	require.Zero(t, since("alice"), "no device is live")

	record(t, s, on("bob", "a", base), idleAt("bob", "b", base+window))
	require.Zero(t, since("bob"), "the other one counts, just")
	record(t, s, idleAt("bob", "b", base+window+1))
	require.Equal(t, base+window-10, since("bob"), "the other one does not count any longer")
	leave(t, s, "bob", base+window+2)
	require.Zero(t, since("bob"), "no device is live")
	ping(t, s, "bob", base+window+3)
	require.Zero(t, since("bob"), "no device is live")

	record(t, s, idleAt("carol", "a", base), idleAt("dave", "a", base))
	require.Equal(t, base-10, since("carol"))
	forget(t, s, "carol")
	require.Zero(t, since("carol"))
	ping(t, s, "carol", base)
	require.Zero(t, since("carol"))
	trim(t, s, ns, base+minute*60, true)
	require.Empty(t, details(t, s, "alice", "bob", "carol", "dave"), "they are deleted")
	ping(t, s, "dave", base)
	require.Zero(t, since("dave"))
}

// testIdleAndSaid: a user can be idle and say something, and neither changes the other.
func testIdleAndSaid(t *testing.T, s store.Store) {
	start := now(t, s)
	say(t, s, "alice", busy)
	record(t, s, idleAt("alice", "a", start))
	require.Equal(t, map[string]store.Details{"alice": {Said: busy, IdleSince: start - 10}}, details(t, s, "alice"))
	say(t, s, "alice", until(start+60*minute, away))
	require.Equal(t, map[string]store.Details{
		"alice": {Said: until(start+60*minute, away), IdleSince: start - 10},
	}, details(t, s, "alice"))
	record(t, s, on("alice", "a", start+1))
	requireSaid(t, s, "alice", until(start+60*minute, away))
	record(t, s, idleAt("alice", "a", start+20))
	say(t, s, "alice", nothing)
	require.Equal(t, map[string]store.Details{"alice": {IdleSince: start + 10}}, details(t, s, "alice"))
	sayAt(t, s, "alice", until(start-30*minute, busy), start-60*minute)
	require.Equal(t, map[string]store.Details{"alice": {IdleSince: start + 10}}, details(t, s, "alice"))
	require.Equal(t, left(start+20), sayAt(t, s, "alice", invisible, start+19))
	require.Empty(t, details(t, s, "alice"), "the devices are gone")
	record(t, s, idleAt("alice", "a", start+30))
	require.Empty(t, details(t, s, "alice"), "hidden")
}

// testDescribe: others see each user's details with the state of the same moment.
func testDescribe(t *testing.T, s store.Store) {
	start := now(t, s)
	ping(t, s, "here", start)
	leave(t, s, "left", start)
	for _, user := range []string{"here", "left", "unknown"} {
		say(t, s, user, said(lastseen.Busy, user))
	}
	names := []string{"unknown", "nobody", "left", "here", "nobody else"}
	want := map[string]store.Details{}
	for _, user := range []string{"here", "left", "unknown"} {
		want[user] = store.Details{Said: said(lastseen.Busy, user)}
	}
	require.Equal(t, want, details(t, s, names...))
	page := list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10})
	read, err := s.ReadDetails(context.Background(), ns, page)
	require.NoError(t, err)
	delete(want, "unknown")
	require.Equal(t, want, read, "the users of a page")
}

// testDescribeNothing: nothing is described where no user says anything, and nothing is created.
func testDescribeNothing(t *testing.T, s store.Store) {
	require.Empty(t, details(t, s, "alice", "bob"))
	require.Empty(t, existing(t, s))
	ping(t, s, "alice", base)
	record(t, s, on("bob", "a", base))
	require.Empty(t, details(t, s, "alice", "bob"))
	require.Equal(t, nothing, saying(t, s, "alice", base))
	say(t, s, "alice", nothing)
	require.Empty(t, details(t, s, "alice", "bob"))
}

// testSaidConcurrent: of what is said at the same time, one counts, as a whole; and no ping of a hidden time is seen.
func testSaidConcurrent(t *testing.T, s store.Store) {
	const users, writers = 5, 8
	start := now(t, s)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range 20 {
				user := fmt.Sprint("user", i%users)
				what := until(start+60*minute+lastseen.Instant(w), said(lastseen.Busy, fmt.Sprint(w)))
				if _, err := s.SetAvailability(context.Background(), ns, user, what, start); err != nil {
					t.Error(err)
				}
				if _, err := s.Ping(context.Background(), ns, sightings(start+lastseen.Instant(i), user)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range users {
		user := fmt.Sprint("user", i)
		got := saying(t, s, user, start)
		require.Equal(t, fmt.Sprint(int(got.Until-start-60*minute)), got.Note)
		requireSaid(t, s, user, got)
		sayAt(t, s, user, invisible, start+minute/60)
	}
	want := lookup(t, s, "user0", "user1", "user2", "user3", "user4")
	for w := range writers {
		wg.Go(func() {
			user := fmt.Sprint("user", w%users)
			for range 20 {
				if states, err := s.Ping(context.Background(), ns, sightings(lastseen.MaxInstant, user)); err != nil ||
					states[0] != want[w%users] {
					t.Errorf("%v, %v", states, err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, want, lookup(t, s, "user0", "user1", "user2", "user3", "user4"))
}
