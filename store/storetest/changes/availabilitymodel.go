package changes

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// talk is what the users of a changes model say.
type talk struct {
	availability map[string]lastseen.AvailabilityState // what others see; it may have ended
	hidden       map[string]lastseen.HiddenTime
	idle         map[string]lastseen.Instant // since when users use none of their devices
	inCall       map[string]lastseen.Instant // until when users are in a call; it may have passed
}

func newTalk() *talk {
	return &talk{
		availability: map[string]lastseen.AvailabilityState{}, hidden: map[string]lastseen.HiddenTime{},
		idle:   map[string]lastseen.Instant{},
		inCall: map[string]lastseen.Instant{},
	}
}

// details returns what others see of a user; nothing where no user can say anything.
func (k *talk) details(user string) store.Details {
	if k == nil {
		return store.Details{}
	}
	return store.Details{Availability: k.availability[user], IdleSince: k.idle[user], InCallUntil: k.inCall[user]}
}

func (k *talk) forget(user string) {
	if k != nil {
		delete(k.availability, user)
		delete(k.hidden, user)
		delete(k.idle, user)
		delete(k.inCall, user)
	}
}

// trim deletes what a Trim deletes.
func (k *talk) trim(user string) {
	if k != nil {
		delete(k.idle, user)
	}
}

// endCalls has users be in no call, as after a restart of a store that keeps that in memory.
func (k *talk) endCalls() {
	if k != nil {
		clear(k.inCall)
	}
}

// drawTabs draws users who have devices, some of them idle, and do not ping without: when that makes a user idle no
// longer is up to the store.
var drawTabs = rapid.SampledFrom([]string{"tab0", "tab1", "tab2"})

// talking returns the actions about the availability of users.
func (m *changesModel) talking() map[string]func(*rapid.T) {
	if m.talk == nil {
		return nil
	}
	return map[string]func(*rapid.T){
		"say":       m.setAvailability,
		"invisible": m.hide,
		"idle":      m.idles,
		"in call":   m.setInCall,
	}
}

// hides reports whether an event about a time is hidden that arrives now.
func (m *changesModel) hides(user string, at, now lastseen.Instant) bool {
	return m.talk != nil && m.talk.hidden[user].Hides(at, now, store.MaxAhead)
}

// present is the time at which users set an availability: a second before that of the store. Now may be ahead of the
// clock that a write reads, and a hidden time that ends then has to be over for it.
func (m *changesModel) present(t *rapid.T) lastseen.Instant { return kit.Now(t, m) - 1000 }

// setAvailability has a user set an availability that others see, which may end soon after the watermark.
func (m *changesModel) setAvailability(t *rapid.T) {
	user, at := rapid.OneOf(kit.DrawUser, drawTabs).Draw(t, "user"), m.present(t)
	what := availability.State(
		rapid.SampledFrom([]lastseen.Availability{"", lastseen.Busy, lastseen.Away}).Draw(t, "availability"),
		rapid.SampledFrom([]string{"", "a note"}).Draw(t, "note"))
	if what != availability.Nothing && rapid.Bool().Draw(t, "ends") {
		after := rapid.SampledFrom([]lastseen.Instant{-1, 0, 1, 2, 3, 50, 200, 60 * kit.Minute}).Draw(t, "after")
		what.Until = max(m.watermark, at) + after
	}
	what = what.At(at)
	require.Equal(t, m.states[user], availability.SetAt(t, m, user, what, at))
	m.change(user, func() { m.talk.availability[user] = what })
	if h := m.talk.hidden[user]; h.End > at && !h.Ended {
		m.talk.hidden[user] = lastseen.HiddenTime{End: at, Ended: true}
	}
}

// hide has a user become invisible, for longer than a test takes.
func (m *changesModel) hide(t *rapid.T) {
	if m.devices == nil {
		m.firstDevice(t)
	}
	user, at := rapid.OneOf(kit.DrawUser, drawTabs).Draw(t, "user"), m.present(t)
	what := availability.State(lastseen.Invisible, "a note")
	if rapid.Bool().Draw(t, "ends") {
		what.Until = at.Add(10_000 * time.Hour)
	}
	if h := m.talk.hidden[user]; h.End <= at || h.Ended {
		state := m.claims(user, devices.Claim{At: max(at, m.states[user].At), Gone: true})
		m.change(user, func() {
			m.states[user] = state
			delete(m.talk.idle, user)
		})
	}
	m.talk.hidden[user] = lastseen.HiddenTime{End: what.HiddenUntil()}
	require.Equal(t, m.states[user], availability.SetAt(t, m, user, what, at))
}

// idles has a device assert something that may be idle. Since when the user is, follows from the records.
func (m *changesModel) idles(t *rapid.T) {
	if m.devices == nil {
		m.firstDevice(t)
	}
	user, clock := drawTabs.Draw(t, "user"), kit.Now(t, m)
	c := devices.Claim{ID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "device"), At: m.drawAt(t)}
	c.Gone = rapid.IntRange(0, 3).Draw(t, "gone") == 0
	d := c.Event(user)
	if rapid.Bool().Draw(t, "idle") {
		d.Idle = c.At - rapid.SampledFrom([]lastseen.Instant{0, 1000}).Draw(t, "idle for")
	}
	state := devices.RecordOne(t, m, d)
	if m.hides(user, c.At, clock) {
		require.Equal(t, m.states[user], state)
		return
	}
	require.Equal(t, m.claims(user, c), state)
	devices := devices.Of(t, m, user)
	m.change(user, func() {
		m.states[user] = state
		m.talk.idle[user], _ = devices.Activity(state.At)
	})
}

// setInCall has a user be in a call, which may end soon after the watermark, or in none.
func (m *changesModel) setInCall(t *rapid.T) {
	if len(m.known()) == 0 {
		return // the namespace may not exist
	}
	user := rapid.OneOf(kit.DrawUser, drawTabs).Draw(t, "user")
	until := lastseen.Instant(0)
	if rapid.IntRange(0, 2).Draw(t, "in a call") > 0 {
		after := rapid.SampledFrom([]lastseen.Instant{-1, 0, 1, 2, 3, 50, 200, 60 * kit.Minute}).Draw(t, "after")
		until = max(m.watermark, m.present(t)) + after
	}
	kit.SetInCall(t, m.Store, kit.Namespace, user, until)
	m.change(user, func() { m.talk.inCall[user] = until })
}

// stops returns the instants up to one at which something in details ends, each with the instant before it.
func (m *changesModel) stops(to lastseen.Instant) (stops []lastseen.Instant) {
	if m.talk == nil {
		return nil
	}
	for _, what := range m.talk.availability {
		if m.watermark < what.Until && what.Until <= to {
			stops = append(stops, what.Until-1, what.Until)
		}
	}
	for _, until := range m.talk.inCall {
		if m.watermark < until && until <= to {
			stops = append(stops, until-1, until)
		}
	}
	slices.Sort(stops)
	return slices.Compact(stops)
}

// forgetHidden forgets the users who were invisible: what a store does with hidden times while its clock is wrong, or
// after it lost writes, is not part of this model.
func (m *changesModel) forgetHidden(t *rapid.T) {
	if m.talk == nil {
		return
	}
	for _, user := range slices.Sorted(maps.Keys(m.talk.hidden)) {
		m.forgets(t, user)
	}
}

// relearn takes over what the store has of the availability of users: it may have deleted what ended, or lost it.
func (m *changesModel) relearn(t *rapid.T) {
	if m.talk == nil {
		return
	}
	names := append(m.users(), "tab0", "tab1", "tab2")
	_, described, err := m.Describe(context.Background(), kit.Namespace, names)
	require.NoError(t, err)
	for _, user := range names {
		m.talk.availability[user], m.talk.idle[user] = described[user].Availability, described[user].IdleSince
		m.talk.inCall[user] = described[user].InCallUntil
	}
}

// requireTalk compares what others see. What has ended may be there, or not.
func (m *changesModel) requireTalk(t *rapid.T) {
	if m.talk == nil {
		return
	}
	names := m.users()
	_, described, err := m.Describe(context.Background(), kit.Namespace, names)
	require.NoError(t, err)
	clock := kit.Now(t, m)
	for _, user := range names {
		want, got := m.talk.details(user), described[user]
		if got.Availability == availability.Nothing {
			want.Availability = want.Availability.At(clock)
		}
		if got.InCallUntil == 0 && want.InCallUntil <= clock {
			want.InCallUntil = 0
		}
		require.Equal(t, want, got, user)
	}
}
