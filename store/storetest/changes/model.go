package changes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// changesModel is a simple feed: the entries that each user must have, computed from a map of states.
type changesModel struct {
	kit.Breakable
	thresholds
	states     map[string]lastseen.State
	recorded   bool             // there is a feed
	watermark  lastseen.Instant // of all shards
	epoch      int              // the number of feeds that have begun: positions of others are a reset
	log        map[string][]store.Change
	devices    map[string][]devices.Claim // what users claimed; nil while the namespace has had no device
	talk       *talk                      // the availability of users; nil if the store cannot keep it
	unrecorded bool                       // users may have become unknown without an entry, by Trim or Fault
	passed     time.Duration              // by Pass
	renewed    time.Duration              // passed at the last RecordChanges
	readers    []*modelReader
}

// modelUsers is the number of users of a model: so few that one call of AdvanceChanges turns all of them yellow or
// grey, even if it counts those who pass both thresholds twice.
const modelUsers = store.MaxAdvance/2 - 25 // drawn users, and the first ones, are others

// testChangesModel runs random operations on a store and on the model. Readers read on from new and from old positions.
// Each of them gets exactly the entries of the model, or a reset where the feed it was reading has ended.
func testChangesModel(t *testing.T, open func(testing.TB) kit.Breakable) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &changesModel{Breakable: open(t), states: map[string]lastseen.State{}}
		if m.Talks {
			m.talk = newTalk()
		}
		m.thresholds = rapid.SampledFrom([]thresholds{
			Normal, {Green: 20 * time.Second, Yellow: 20*time.Second + 40*time.Millisecond},
		}).Draw(rt, "thresholds")
		m.record(rt)
		actions := map[string]func(*rapid.T){
			"ping":       func(t *rapid.T) { m.write(t, false) },
			"leave":      func(t *rapid.T) { m.write(t, true) },
			"bulk":       m.bulk,
			"device":     m.device,
			"devices":    m.device,
			"forget":     m.forget,
			"delete":     m.delete,
			"trim":       m.trim,
			"record":     func(t *rapid.T) { m.record(t) },
			"advance":    m.advance,
			"advance on": m.advance,
			"snapshot":   m.snapshot,
			"end":        m.end,
			"read":       m.read,
			"fork":       m.fork,
			"":           m.check,
		}
		maps.Copy(actions, m.breakages())
		maps.Copy(actions, m.talking())
		rt.Repeat(actions)
		for _, r := range m.readers {
			m.readToEnd(rt, r)
		}
	})
}

// drawAt returns a time at or around one of the thresholds, as seen from the watermark, or long ago.
func (m *changesModel) drawAt(t *rapid.T) lastseen.Instant {
	age := rapid.SampledFrom([]time.Duration{0, m.Green, m.Yellow, m.Yellow + time.Hour}).Draw(t, "age")
	off := rapid.SampledFrom([]lastseen.Instant{-3, -2, -1, 0, 1, 2, 3, 50, 200}).Draw(t, "off")
	if !m.recorded {
		return kit.Now(t, m).Add(-age) + off
	}
	return m.watermark.Add(-age) + off
}

func (m *changesModel) write(t *rapid.T, leave bool) {
	users := rapid.SliceOfNDistinct(kit.DrawUser, 1, 6, rapid.ID[string]).Draw(t, "users")
	batch := make([]store.PresenceEvent, len(users))
	for i, user := range users {
		batch[i] = store.PresenceEvent{User: user, At: m.drawAt(t)}
	}
	m.send(t, batch, leave)
}

// bulk pings or leaves for many users at one time.
func (m *changesModel) bulk(t *rapid.T) {
	names := make([]string, rapid.IntRange(20, modelUsers).Draw(t, "n"))
	for i := range names {
		names[i] = fmt.Sprint("u", i)
	}
	m.send(t, kit.Events(m.drawAt(t), names...), rapid.Bool().Draw(t, "leave"))
}

func (m *changesModel) send(t *rapid.T, batch []store.PresenceEvent, leave bool) {
	w := kit.Write(m.Ping)
	if leave {
		w = m.Leave
	}
	clock := kit.Now(t, m)
	for i, state := range w.Send(t, kit.Namespace, batch) {
		user, at := batch[i].User, batch[i].At
		if m.hides(user, at, clock) {
			require.Equal(t, m.states[user], state)
			continue
		}
		require.Equal(t, m.claims(user, devices.Claim{At: at, Gone: leave}), state)
		m.change(user, func() { m.states[user] = state })
	}
}

// become gives a user another state, and an entry if the published presence changes.
func (m *changesModel) become(user string, state lastseen.State) {
	m.change(user, func() { m.states[user] = state })
}

// change makes a change to a user, and an entry if it changes what is published.
func (m *changesModel) change(user string, change func()) {
	known, was := m.states[user].Known(), m.published(user)
	change()
	is := m.published(user)
	forgotten := known && !is.Known()
	switch {
	case !m.recorded, !forgotten && was.Same(is):
	default:
		m.log[user] = append(m.log[user], entry(user, was, is))
	}
}

func (m *changesModel) forget(t *rapid.T) {
	m.forgets(t, kit.DrawUser.Draw(t, "user"))
}

func (m *changesModel) forgets(t *rapid.T, user string) {
	kit.Forget(t, m, user)
	m.know(user, store.UserDevices{})
	m.change(user, func() {
		delete(m.states, user)
		m.talk.forget(user)
	})
}

func (m *changesModel) delete(t *rapid.T) {
	require.NoError(t, m.DeleteNamespace(context.Background(), kit.Namespace))
	clear(m.states)
	m.devices = nil
	if m.talk != nil {
		m.talk = newTalk()
	}
	m.endFeed()
}

// endFeed notes that there is no feed until the next RecordChanges.
func (m *changesModel) endFeed() { m.recorded = false }

// newFeed notes that positions up to now are a reset.
func (m *changesModel) newFeed() {
	m.epoch++
	m.recorded, m.log = true, map[string][]store.Change{}
	for _, r := range m.readers {
		r.inexact = false
	}
}

// trim deletes as much as is allowed.
func (m *changesModel) trim(t *rapid.T) {
	if !m.recorded {
		return
	}
	cutoff := m.watermark.Add(-m.Yellow)
	result, err := m.Trim(context.Background(), kit.Namespace,
		store.TrimQuery{Age: time.Millisecond, Now: kit.Now(t, m), All: true})
	require.NoError(t, err)
	before := len(m.known())
	maps.DeleteFunc(m.states, func(user string, s lastseen.State) bool {
		if s.At < cutoff {
			delete(m.devices, user)
			m.talk.trim(user)
		}
		return s.At < cutoff
	})
	require.Equal(t, before-len(m.known()), result.Deleted)
	m.unrecorded = m.unrecorded || result.Deleted > 0
}

func (m *changesModel) known() (users []string) {
	for user, state := range m.states {
		if state.Known() {
			users = append(users, user)
		}
	}
	return users
}

// record calls RecordChanges. If this begins a feed, it gives all shards one watermark before anybody reads.
func (m *changesModel) record(t *rapid.T) {
	recordChanges(t, m, kit.Namespace, m.thresholds)
	m.renewed = m.passed
	if !m.recorded {
		m.newFeed()
		m.advanceAll(t)
	}
}

// advanceAll gives all shards one watermark: that of the shards which still have the feed before, if it is near.
func (m *changesModel) advanceAll(t *rapid.T) {
	to := kit.Now(t, m) + playAhead
	if m.watermark > to && m.watermark <= to+maxPlayed {
		to = m.watermark
	}
	m.watermark = m.advanceTo(t, to)
}

// advanceTo advances the feed until no more users turn yellow or grey and returns the watermark. It stops at each end
// of an availability: for a user whose status also changes with time on the way, one advance may append one entry or
// two.
func (m *changesModel) advanceTo(t *rapid.T, to lastseen.Instant) lastseen.Instant {
	for _, stop := range m.stops(to) {
		m.advanceOnce(t, stop)
	}
	return m.advanceOnce(t, to)
}

// advanceOnce advances the feed until no more users turn yellow or grey.
func (m *changesModel) advanceOnce(t *rapid.T, to lastseen.Instant) lastseen.Instant {
	for range 100 {
		advance := &store.ChangesAdvance{Namespace: kit.Namespace, Thresholds: m.thresholds, Now: to}
		m.AdvanceChanges(context.Background(), []*store.ChangesAdvance{advance})
		require.NoError(t, advance.Err)
		require.False(t, advance.Elsewhere)
		if !advance.More {
			return advance.Watermark
		}
	}
	t.Fatal("the advances do not end")
	return 0
}

// advance moves the watermark a little, or to a little before or after the store's clock.
func (m *changesModel) advance(t *rapid.T) {
	clock := kit.Now(t, m)
	to := m.watermark + rapid.SampledFrom([]lastseen.Instant{-kit.Minute, -1, 0, 1, 2, 5, 60, 250}).Draw(t, "on")
	if rapid.IntRange(0, 3).Draw(t, "to the clock") == 0 {
		to = clock + lastseen.Instant(rapid.IntRange(-500, 500).Draw(t, "ahead"))
	}
	to = min(to, clock+playAhead+maxPlayed)
	if !m.recorded {
		RequireNotRecorded(t, m)
		return
	}
	require.Equal(t, max(m.watermark, to), m.advanceTo(t, to))
	m.advanceModel(to)
}

// advanceModel moves the model's watermark, if this is forward.
func (m *changesModel) advanceModel(to lastseen.Instant) {
	for _, stop := range append(m.stops(to), to) {
		m.advanceModelOnce(stop)
	}
}

func (m *changesModel) advanceModelOnce(to lastseen.Instant) {
	if to <= m.watermark {
		return
	}
	before := m.watermark
	for _, user := range m.users() {
		m.watermark = before
		was := m.published(user)
		m.watermark = to
		if is := m.published(user); !was.Same(is) {
			m.log[user] = append(m.log[user], entry(user, was, is))
		}
	}
	m.watermark = to
}

// published returns what a user is published as.
func (m *changesModel) published(user string) store.Published {
	return store.Publish(m.thresholds, m.states[user], m.talk.details(user), m.watermark)
}

// users returns the users who have a state, have an availability, or are in a call.
func (m *changesModel) users() []string {
	all := maps.Clone(m.states)
	if m.talk != nil {
		for user := range m.talk.availability {
			all[user] = lastseen.State{}
		}
		for user := range m.talk.inCall {
			all[user] = lastseen.State{}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// check has a reader read to the end, and compares a snapshot.
func (m *changesModel) check(t *rapid.T) {
	if !m.recorded {
		RequireNotRecorded(t, m)
		return
	}
	m.requireDeviceRecords(t)
	if len(m.readers) > 0 {
		m.readToEnd(t, rapid.SampledFrom(m.readers).Draw(t, "reader"))
	}
	m.requireTalk(t)
	names := append(m.users(), "nobody")
	snapshot, err := m.SnapshotChanges(context.Background(), kit.Namespace, names)
	require.NoError(t, err)
	require.Equal(t, m.watermark, snapshot.Watermark)
	for i, user := range names {
		require.Equal(t, m.published(user), snapshot.Users[i], user)
	}
}
