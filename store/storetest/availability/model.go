package availability

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// model is a simple store of the availability of users, by the rules of package lastseen alone. Its time is hours
// before that of the store, so that it can pass.
type model struct {
	kit.Breakable
	users  map[string]*person
	exists bool             // the namespace
	clock  lastseen.Instant // a whole number of minutes after the start; other times are milliseconds later
}

// person is what the model knows of a user.
type person struct {
	lastseen.State
	devices lastseen.Devices
	idle    lastseen.Instant           // since when the user uses no device
	seen    lastseen.AvailabilityState // what others see
	hidden  lastseen.HiddenTime
	note    string // of the hidden time
}

// RunFaulty compares the availability of users with a model while stores break.
func RunFaulty(t *testing.T, open func(testing.TB) kit.Breakable) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		b := open(t)
		m := &model{Breakable: b, users: map[string]*person{}, clock: kit.Now(rt, b) - 20*60*kit.Minute}
		m.first(rt)
		actions := map[string]func(*rapid.T){
			"say": m.say, "say more": m.say, "invisible": m.hide, "ping": m.ping, "leave": m.leave, "device": m.device,
			"forget": m.forget, "trim": m.trim, "remove": m.remove, "delete": m.delete, "time": m.tick, "later": m.tick,
			"": m.check,
		}
		if m.Restart != nil {
			actions["restart"] = func(*rapid.T) { m.Store = m.Restart() }
		}
		rt.Repeat(actions)
	})
}

// first records a ping of a device: from here on, leaves concern devices.
func (m *model) first(t *rapid.T) {
	m.asserts(t, devices.On("first", "a", m.clock))
	m.exists = true
}

// tick lets the model's time pass.
func (m *model) tick(t *rapid.T) {
	pass := rapid.SampledFrom([]lastseen.Instant{1, 2, 3, 10}).Draw(t, "minutes") * kit.Minute
	m.clock = min(m.clock+pass, kit.Now(t, m)-30*kit.Minute)
}

// drawTime returns a time around the model's, or minutes before.
func (m *model) drawTime(t *rapid.T) lastseen.Instant {
	back := rapid.SampledFrom([]lastseen.Instant{0, 0, 1, 2, 5, 30}).Draw(t, "minutes ago") * kit.Minute
	return m.clock - back + rapid.SampledFrom([]lastseen.Instant{0, 1, 2}).Draw(t, "ms")
}

// get returns what the model knows of a user.
func (m *model) get(user string) *person {
	if m.users[user] == nil {
		m.users[user] = &person{}
	}
	return m.users[user]
}

// invisible reports whether the user is in a hidden time that has not ended.
func (p *person) invisible(at lastseen.Instant) bool { return !p.hidden.Ended && p.hidden.End > at }

// drawPlain and drawTab draw users who ping without devices, and users who have devices. Those who have some do not
// ping without: when that makes a user idle no longer is up to the store.
var (
	drawPlain = rapid.SampledFrom([]string{"u0", "u1", "u2"})
	drawTab   = rapid.SampledFrom([]string{"tab0", "tab1", "tab2"})
	drawAny   = rapid.OneOf(drawPlain, drawTab)
)

// until draws an end, in the model's time.
func (m *model) until(t *rapid.T) lastseen.Instant {
	switch minutes := rapid.SampledFrom([]lastseen.Instant{-1, 0, 1, 3, 10, 60_000}).Draw(t, "for"); minutes {
	case 0:
		return 0
	default:
		return m.clock + minutes*kit.Minute + rapid.SampledFrom([]lastseen.Instant{0, 1}).Draw(t, "and ms")
	}
}

func (m *model) say(t *rapid.T) {
	m.set(t, rapid.SampledFrom([]lastseen.Availability{lastseen.Busy, lastseen.Away, ""}).Draw(t, "availability"))
}

func (m *model) hide(t *rapid.T) { m.set(t, lastseen.Invisible) }

func (m *model) set(t *rapid.T, a lastseen.Availability) {
	user, note := drawAny.Draw(t, "user"), rapid.SampledFrom([]string{"", "a note"}).Draw(t, "note")
	what, at := State(a, note), m.clock
	if what != Nothing {
		what = Until(m.until(t), what).At(at)
	}
	p := m.get(user)
	hidden := p.invisible(at)
	switch {
	case what.Availability == lastseen.Invisible && hidden && !m.exists:
		return // whether this creates the namespace is up to the store
	case what.Availability == lastseen.Invisible:
		if !hidden {
			p.leave(max(at, p.At))
		}
		p.hidden, p.note = lastseen.HiddenTime{End: what.HiddenUntil()}, what.Note
	default:
		p.seen = what
		if hidden {
			p.hidden = lastseen.HiddenTime{End: at, Ended: true}
		}
	}
	m.exists = m.exists || what != Nothing
	require.Equal(t, p.State, SetAt(t, m, user, what, at))
}

func (p *person) leave(at lastseen.Instant) {
	p.State, p.devices = p.devices.Leave(p.State, at)
	p.idle, _ = p.devices.Activity(p.At)
}

// hides reports whether an event is hidden. One that is not creates the namespace.
func (m *model) hides(t *rapid.T, user string, at lastseen.Instant) bool {
	hides := m.get(user).hidden.Hides(at, kit.Now(t, m), store.MaxAhead)
	m.exists = m.exists || !hides
	return hides
}

func (m *model) ping(t *rapid.T) {
	user, at := drawPlain.Draw(t, "user"), m.drawTime(t)
	if p := m.get(user); !m.hides(t, user, at) {
		p.State = p.AfterPing(at)
	}
	require.Equal(t, m.get(user).State, kit.Ping(t, m, user, at))
}

func (m *model) leave(t *rapid.T) {
	user, at := drawAny.Draw(t, "user"), m.drawTime(t)
	if !m.hides(t, user, at) {
		m.get(user).leave(at)
	}
	require.Equal(t, m.get(user).State, kit.Leave(t, m, user, at))
}

func (m *model) device(t *rapid.T) {
	user, id := drawTab.Draw(t, "user"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "device")
	d := devices.On(user, id, m.drawTime(t))
	d.Gone = rapid.IntRange(0, 3).Draw(t, "gone") == 0
	if !d.Gone && rapid.Bool().Draw(t, "idle") {
		d.Idle = d.At - rapid.SampledFrom([]lastseen.Instant{0, 1000}).Draw(t, "idle for")
	}
	m.asserts(t, d)
}

func (m *model) asserts(t *rapid.T, d store.DeviceEvent) {
	p := m.get(d.User)
	if !m.hides(t, d.User, d.At) {
		record := d.Record()
		if d.Idle != 0 && p.hidden.Hides(d.Idle, kit.Now(t, m), store.MaxAhead) {
			record.IdleSince = d.At
		}
		p.State, p.devices = p.devices.Assert(p.State, devices.WindowTime, record)
		p.idle, _ = p.devices.Activity(p.At)
	}
	require.Equal(t, p.State, devices.RecordOne(t, m, d))
}

func (m *model) forget(t *rapid.T) {
	user := drawAny.Draw(t, "user")
	delete(m.users, user)
	kit.Forget(t, m, user)
}

func (m *model) trim(t *rapid.T) {
	cutoff, deleted := m.clock-rapid.SampledFrom([]lastseen.Instant{0, 2, 10}).Draw(t,
		"kept")*kit.Minute-kit.Minute/2, 0
	for _, p := range m.users {
		if p.Known() && p.At < cutoff {
			p.State, p.devices, p.idle = lastseen.State{}, lastseen.Devices{}, 0
			deleted++
		}
	}
	require.Equal(t, store.TrimResult{Deleted: deleted}, kit.Trim(t, m, kit.Namespace, cutoff, true))
}

func (m *model) remove(t *rapid.T) {
	empty := m.exists
	for _, p := range m.users {
		empty = empty && !p.Known() && p.seen.At(kit.Now(t, m)) == Nothing
	}
	require.Equal(t, empty, kit.RemoveEmpty(t, m, kit.Namespace))
	m.exists = m.exists && !empty
	if empty {
		m.relearn(t)
	}
}

// relearn takes over what was deleted with the namespace: by the store's clock, each availability had ended.
// A store can also keep it until the caller's time is past the end.
func (m *model) relearn(t *rapid.T) {
	names := slices.Sorted(maps.Keys(m.users))
	_, described, err := m.Describe(context.Background(), kit.Namespace, names)
	require.NoError(t, err)
	for _, user := range names {
		p, is := m.users[user], described[user].Availability
		if at := m.clock + 2; !p.invisible(at) {
			is = Get(t, m, user, at)
		}
		if is == Nothing {
			p.seen = Nothing
		}
	}
}

func (m *model) delete(t *rapid.T) {
	require.NoError(t, m.DeleteNamespace(context.Background(), kit.Namespace))
	m.exists = false
	clear(m.users)
	m.first(t)
}

// check compares all that can be read.
func (m *model) check(t *rapid.T) {
	names := slices.Sorted(maps.Keys(m.users))
	want, states := map[string]store.Details{}, kit.Lookup(t, m, names...)
	for i, user := range names {
		p := m.users[user]
		require.Equal(t, p.State, states[i], user)
		d := store.Details{Availability: p.seen.At(kit.Now(t, m)), IdleSince: p.idle}
		if d != (store.Details{}) {
			want[user] = d
		}
		is, at := p.seen, m.clock+2 // no earlier than any call: what had ended by then may be deleted
		if p.invisible(at) {
			is = lastseen.AvailabilityState{Availability: lastseen.Invisible, Note: p.note, Until: p.hidden.End}
			if is.Until == lastseen.MaxInstant {
				is.Until = 0
			}
		}
		require.Equal(t, is.At(at), Get(t, m, user, at), user)
		require.ElementsMatch(t, p.devices.Of(p.State).Records, devices.Of(t, m, user).Records, user)
	}
	require.Equal(t, want, Details(t, m, names...))
	var known []string
	for _, user := range names {
		if m.users[user].Known() {
			known = append(known, user)
		}
	}
	require.ElementsMatch(t, known, kit.Remaining(t, m))
	require.Equal(t, m.exists, len(kit.Existing(t, m)) > 0, fmt.Sprint(known))
}
