package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// lists stands for the lists of a namespace among users who are marked.
const lists = redisstore.MarkedLists

// marked is a store whose marks a test reads. Marks do not depend on replicas, so it has none. In the namespace chat,
// alice and carol are invisible, bob is not, and all have left.
type marked struct {
	*testing.T
	*redisstore.Store
	primary *redistest.Process
}

func newMarked(t *testing.T, shards int) *marked {
	t.Helper()
	m := &marked{T: t, primary: redistest.StartProcess(t)}
	m.Store = newStore(t, redisstore.Options{URL: m.primary.URL(), MaxLag: testLag, Shards: shards})
	m.SettleAtOnce()
	require.Eventually(t, func() bool { return m.Moment() > 0 }, longTimeout, time.Millisecond, "the first heartbeat")
	m.WatchMarks("chat", "alice", "bob", "carol")
	require.NoError(t, ping(m, "chat", "alice", "bob", "carol"))
	record(t, m, onDevice("alice", "tab", base))
	m.wrote("pings", "alice", "bob", "carol")
	m.leave(base+1, "bob")
	m.wrote("a leave", "bob")
	sayAt(t, m, "alice", invisible, base+1)
	m.wrote("becoming invisible is a leave", "alice")
	sayAt(t, m, "carol", lastseen.Said{Availability: lastseen.Invisible, Until: base + 1000}, base+1)
	m.wrote("becoming invisible for some time", "carol")
	sayAt(t, m, "alice", invisible, base+1)
	m.wrote("the same call once more, as after a broken connection", "alice")
	return m
}

// wrote fails the test unless exactly these users were marked since the last call.
func (m *marked) wrote(what string, want ...string) {
	m.Helper()
	require.ElementsMatch(m, want, m.TakeMarks("chat", "alice", "bob", "carol"), what)
}

func (m *marked) leave(at lastseen.Instant, users ...string) {
	m.Helper()
	_, err := m.Leave(context.Background(), "chat", sightingsAt(at, users...))
	require.NoError(m, err)
}

func eachMarked(t *testing.T, test func(*testing.T, *marked)) {
	t.Helper()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			test(t, newMarked(t, shards))
		})
	}
}

// TestHiddenIsNotMarked: what is hidden has nobody's lookups or lists read from the primary, which the header
// Lastseen-Age would show. Other users in the same call are marked.
func TestHiddenIsNotMarked(t *testing.T) {
	t.Parallel()
	eachMarked(t, func(t *testing.T, m *marked) {
		for n, users := range [][]string{{"alice"}, {"alice", "bob"}} {
			at, want := base+10+lastseen.Instant(10*n), users[1:]
			_, err := m.Ping(context.Background(), "chat", sightingsAt(at, users...))
			require.NoError(t, err)
			m.wrote("pings", want...)
			var devices, byes []store.DeviceSighting
			for _, user := range users {
				devices = append(devices, onDevice(user, "tab", at+1))
				byes = append(byes, byeOnDevice(user, "tab", at+2))
			}
			record(t, m, devices...)
			m.wrote("devices", want...)
			record(t, m, byes...)
			m.wrote("goodbyes", want...)
			m.leave(at+3, users...)
			m.wrote("leaves", want...)
		}
		sayAt(t, m, "alice", lastseen.Said{Availability: lastseen.Invisible, Note: "still"}, base+50)
		m.wrote("an invisible user says so again")
		record(t, m, onDevice("carol", "tab", base+500))
		m.wrote("a device in a hidden time")
		record(t, m, onDevice("carol", "tab", base+600), onDevice("carol", "tab", base+1500))
		m.wrote("and after it", "carol")
		require.NoError(t, m.Forget(context.Background(), "chat", "alice"))
		m.wrote("deleting an invisible user", "alice", lists)
		require.NoError(t, m.Forget(context.Background(), "chat", "bob"))
		m.wrote("deleting another user", "bob", lists)
	})
}

// TestVisibleAgainIsMarked: what an invisible user shows again is public.
func TestVisibleAgainIsMarked(t *testing.T) {
	t.Parallel()
	eachMarked(t, func(t *testing.T, m *marked) {
		for _, user := range []string{"alice", "bob"} {
			sayAt(t, m, user, lastseen.Said{}, base+100)
			m.wrote("nothing said", user, lists)
			sayAt(t, m, user, inMeeting, base+101)
			m.wrote("busy", user, lists)
			pingAt(t, m, user, base+200)
			m.wrote("a ping", user)
		}
	})
}

// TestHiddenWithoutNamespaceIsNotMarked: a namespace that does not exist any longer has invisible users, whose pings do
// not create it.
func TestHiddenWithoutNamespaceIsNotMarked(t *testing.T) {
	t.Parallel()
	eachMarked(t, func(t *testing.T, m *marked) {
		result, err := trim(m, "chat", 0)
		require.NoError(t, err)
		require.Equal(t, store.TrimResult{Deleted: 3}, result)
		removed, err := m.RemoveEmpty(context.Background(), "chat")
		require.NoError(t, err)
		require.True(t, removed)
		m.TakeMarks("chat", "alice", "bob", "carol")
		pingAt(t, m, "alice", base+10)
		m.wrote("a ping")
		record(t, m, onDevice("alice", "tab", base+11))
		m.wrote("a device")
		m.leave(base+12, "alice")
		m.wrote("a leave")
		pingAt(t, m, "bob", base+13)
		m.wrote("a ping that is not hidden", "bob")
	})
}

// TestCallsOfHiddenAreNotMarked: that users are in a call is not shown of users who left, invisible or not.
func TestCallsOfHiddenAreNotMarked(t *testing.T) {
	t.Parallel()
	eachMarked(t, func(t *testing.T, m *marked) {
		c := newCallers(t, m)
		for _, until := range []lastseen.Instant{base + 5000, 0} {
			c.set([]store.InCall{{User: "alice", Until: until}, {User: "bob", Until: until}})
			m.wrote("users who left, or are invisible")
		}
		pingAt(t, m, "bob", base+10)
		m.wrote("a ping", "bob")
		for _, until := range []lastseen.Instant{base + 5000, 0} {
			c.set([]store.InCall{{User: "alice", Until: until}, {User: "bob", Until: until}})
			m.wrote("a user who is there", "bob", lists)
		}
		c.set([]store.InCall{{User: "dora", Until: base + 5000}})
		m.wrote("a user whom nobody has seen")
	})
}

// TestUnknownOutcomesAreNotMarked: a write that failed could have been hidden, in namespaces with invisible users. In
// others it is marked, since it may have been done.
func TestUnknownOutcomesAreNotMarked(t *testing.T) {
	t.Parallel()
	m, ctx := newMarked(t, 1), context.Background()
	writes := func(want ...string) {
		t.Helper()
		_, err := m.Ping(ctx, "chat", sightingsAt(base+20, "alice", "bob"))
		require.Error(t, err)
		m.wrote("pings", want...)
		_, err = m.Leave(ctx, "chat", sightingsAt(base+20, "alice", "bob"))
		require.Error(t, err)
		m.wrote("leaves", want...)
		devices := []store.DeviceSighting{onDevice("alice", "tab", base+20), onDevice("bob", "tab", base+20)}
		_, err = m.RecordDevices(ctx, "chat", window, devices)
		require.Error(t, err)
		m.wrote("devices", want...)
		_, err = m.SetAvailability(ctx, "chat", "alice", invisible, base+20)
		require.Error(t, err)
		m.wrote("becoming invisible")
		_, err = m.SetAvailability(ctx, "chat", "alice", inMeeting, base+20)
		require.Error(t, err)
		m.wrote("busy", "alice", lists)
		in := []store.InCall{{User: "alice", Until: base}, {User: "bob", Until: base}}
		require.Error(t, m.SetInCalls(ctx, "chat", in))
		m.wrote("calls, which are copied again")
	}
	client := m.primary.Client(t)
	require.NoError(t, client.Set(ctx, chat, "not a sorted set", 0).Err())
	writes()
	require.NoError(t, client.FlushAll(ctx).Err())
	m.ExpireAgreements()
	require.NoError(t, ping(m, "chat", "bob"))
	m.wrote("a ping", "bob")
	require.NoError(t, client.Set(ctx, chat, "not a sorted set", 0).Err())
	devices := []store.DeviceSighting{onDevice("alice", "tab", base+20), onDevice("bob", "tab", base+20)}
	_, err := m.Ping(ctx, "chat", sightingsAt(base+20, "alice", "bob"))
	require.Error(t, err)
	m.wrote("pings", "alice", "bob")
	_, err = m.RecordDevices(ctx, "chat", window, devices)
	require.Error(t, err)
	m.wrote("devices", "alice", "bob")
}
