package connections

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func TestOpenRecordsFirstPing(t *testing.T) {
	f := newFixture(t)
	c := f.open("alice")
	got := f.only()
	require.Equal(t, "tab", DeviceOf(got.ID))
	want := store.DeviceEvent{User: "alice", ID: got.ID, Kind: lastseen.Web, At: base, Meta: `{"v":1}`}
	require.Equal(t, want, got.DeviceEvent)
	require.Equal(t, lastseen.State{At: base}, c.State())
	require.Equal(t, "tab", c.Device())
	require.Equal(t, Stats{Open: 1, Opened: 1}, f.Stats())
}

func TestOpenFails(t *testing.T) {
	f := newFixture(t)
	f.store.fail(store.ErrUnavailable)
	_, err := f.Open(t.Context(), f.opening("alice"))
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Empty(t, f.users)
	f.store.fail(nil)
	f.store.refuse = func(callKind, string) error { return store.ErrNoDevices }
	_, err = f.Open(t.Context(), f.opening("alice"))
	require.ErrorIs(t, err, store.ErrNoDevices)
	require.Empty(t, f.users)
	require.Equal(t, Stats{}, f.Stats())
}

func TestConnectionsOfOneUserAreLimited(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.MaxUser = 3 })
	var open []*Connection
	for range 3 {
		open = append(open, f.open("alice"))
	}
	f.open("bob")
	_, err := f.Open(t.Context(), f.opening("alice"))
	require.ErrorIs(t, err, ErrTooMany)
	for _, i := range []int{1, 2, 0} { // in the middle, the first, the last of the list
		open[i].End(Ended)
		f.open("alice").End(Ended)
	}
	require.Equal(t, 1, f.Stats().Open)
	require.Len(t, f.users, 1)
	require.Len(t, f.held, 1)
}

// TestActivityOfOpenings: a client that connects again is idle since the same time as before, and one that says nothing
// is as its device was. An activity that comes right after the opening does not wait.
func TestActivityOfOpenings(t *testing.T) {
	idle := func(d time.Duration) *Activity { return &Activity{Idle: true, For: d} }
	for name, test := range map[string]struct {
		device string
		*Activity
		want lastseen.Instant
	}{
		"the same":           {"tab", idle(98 * time.Second), seconds(10)},
		"nothing said":       {"tab", nil, seconds(10)},
		"idle for longer":    {"tab", idle(200 * time.Second), seconds(-100)},
		"used meanwhile":     {"tab", idle(30 * time.Second), seconds(70)},
		"used":               {"tab", &Activity{}, 0},
		"another":            {"new", idle(98 * time.Second), seconds(10)},
		"another, earlier":   {"new", idle(200 * time.Second), seconds(-100)},
		"another, unsaid":    {"new", nil, 0},
		"made":               {"", idle(30 * time.Second), seconds(70)},
		"idle for ever":      {"new", idle(365 * 24 * time.Hour), seconds(100).Add(-MaxIdle)},
		"idle in the future": {"new", idle(-time.Hour), seconds(10)},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := newConnection(t)
			f.receive(10*time.Second, c)
			c.SetIdle(true)
			f.pass(time.Second)
			require.Equal(t, seconds(10), f.only().Idle)
			f.stay(89*time.Second, c)
			f.store.take()
			o := f.opening("alice")
			o.Device, o.Activity = test.device, test.Activity
			again, err := f.Open(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, test.want, f.only().Idle)
			again.SetIdle(!again.idle)
			f.pass(time.Second)
			got := slices.DeleteFunc(f.store.take(), func(d written) bool { return d.ID != again.record })
			require.Len(t, got, 1)
			require.Equal(t, test.want == 0, got[0].Idle != 0)
		})
	}
}

// TestIdleUsersStayIdle: another connection of an idle user that begins idle, such as that of a hidden tab or the one
// that follows pings over HTTP, does not change since when the user is idle: neither when it opens nor when what was
// there before leaves.
func TestIdleUsersStayIdle(t *testing.T) {
	for name, test := range map[string]struct {
		record, device string
		idle           time.Duration
	}{
		"hidden":                       {"tab~aaaaaaaa", "new", 0},
		"hidden, arrives late":         {"tab~aaaaaaaa", "new", 8 * time.Second},
		"hidden, same device":          {"tab~aaaaaaaa", "tab", 0},
		"hidden, device made":          {"tab~aaaaaaaa", "", 0},
		"moved, device made":           {"tab~aaaaaaaa", "", 85 * time.Second}, // a message takes some time, or less
		"moved, device made, earlier":  {"tab~aaaaaaaa", "", 95 * time.Second},
		"after pings":                  {"tab", "tab", 0},
		"after pings, idle since then": {"tab", "tab", 98 * time.Second},
		"after pings, idle before":     {"tab", "tab", 115 * time.Second}, // the next ping said so
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.store.pass(10 * time.Second)
			first := store.DeviceEvent{User: "alice", ID: test.record, At: seconds(10), Idle: seconds(10)}
			record := func() {
				window := f.store.settings.window()
				_, err := f.store.RecordDevices(t.Context(), ns, window, []store.DeviceEvent{first})
				require.NoError(t, err)
			}
			record()
			f.store.pass(90 * time.Second)
			o := f.opening("alice")
			o.Device, o.Activity = test.device, &Activity{Idle: true, For: test.idle}
			_, err := f.Open(t.Context(), o)
			require.NoError(t, err)
			idle, _ := f.store.devices[ns+" alice"].Activity(seconds(100))
			require.Equal(t, seconds(10), idle)
			first.At, first.Gone = seconds(100), true
			record()
			idle, _ = f.store.devices[ns+" alice"].Activity(seconds(100))
			require.Equal(t, seconds(10), idle)
		})
	}
}
