package lastseen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const deviceWindow = 10 * time.Millisecond

// event is anything that is asserted about one user.
type event struct {
	device string // empty for a ping or leave without a device
	at     Instant
	gone   bool
	idle   Instant
}

// apply returns what a store has after one more event.
func (a event) apply(s State, d Devices) (State, Devices) {
	switch {
	case a.device != "":
		return d.Assert(s, deviceWindow, DeviceRecord{
			ID: a.device, Kind: Web, Since: a.at, At: a.at, Gone: a.gone, IdleSince: a.idle,
		})
	case a.gone:
		return d.Leave(s, a.at)
	default:
		return s.AfterPing(a.at), d
	}
}

// truth is the rule, computed from all events at once.
func truth(all []event) (State, []DeviceRecord) {
	var last, left Instant
	bye := false
	for _, a := range all {
		if a.device == "" && a.gone {
			left = max(left, a.at)
		}
		last = max(last, a.at)
	}
	newest := map[string]event{}
	for _, a := range all {
		bye = bye || a.gone && a.at == last
		if a.device == "" {
			continue
		}
		n, known := newest[a.device]
		switch {
		case !known, a.at > n.at, a.at == n.at && a.gone && !n.gone:
			newest[a.device] = a
		case a.at == n.at && a.gone == n.gone:
			n.idle = max(n.idle, a.idle)
			newest[a.device] = n
		}
	}
	var records []DeviceRecord
	for id, a := range newest {
		if a.at < last.Add(-deviceWindow) {
			continue
		}
		r := DeviceRecord{ID: id, Kind: Web, At: a.at, Gone: a.gone || a.at <= left}
		if !r.Gone {
			r.IdleSince = a.idle
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b DeviceRecord) int {
		return cmp.Or(int(b.At-a.At), strings.Compare(a.ID, b.ID))
	})
	live := slices.ContainsFunc(records, func(r DeviceRecord) bool { return !r.Gone })
	return State{At: last, Left: bye && !live}, records
}

func drawEvent(devices int, spread Instant) *rapid.Generator[event] {
	return rapid.Custom(func(t *rapid.T) event {
		a := event{
			at:   base + Instant(rapid.IntRange(0, int(spread)).Draw(t, "at")),
			gone: rapid.Bool().Draw(t, "gone"),
		}
		if n := rapid.IntRange(0, devices).Draw(t, "device"); n > 0 {
			a.device = fmt.Sprintf("device-%02d", n)
			a.idle = rapid.SampledFrom([]Instant{0, a.at, a.at - 1}).Draw(t, "idle")
		}
		return a
	})
}

// excess returns the record that a user with one too many loses: the oldest one that left, but not the newest record;
// otherwise the oldest one.
func excess(records []DeviceRecord) int {
	for i := len(records) - 1; i > 0; i-- {
		if records[i].Gone {
			return i
		}
	}
	return len(records) - 1
}

// checkRule applies events one after the other. After each, all must be as if all so far were known at once, except
// that those about a record that was deleted for another one say no more than when the user was seen.
func checkRule(t *rapid.T, all []event) {
	var s State
	var d Devices
	for i, a := range all {
		before, kept := s.At, slices.Clone(d.Records)
		records := d.Records
		s, d = a.apply(s, d)
		require.Equal(t, kept, slices.Clone(records), "what was returned before is not changed")
		require.GreaterOrEqual(t, s.At, before, "time never moves back")
		want, wanted := truth(all[:i+1])
		if len(wanted) > MaxDevices {
			lost := excess(wanted)
			for k := range all[:i+1] {
				if all[k].device == wanted[lost].ID {
					all[k] = event{at: all[k].at}
				}
			}
			wanted = slices.Delete(wanted, lost, lost+1)
		}
		require.Equal(t, want, s)
		got := slices.Clone(d.Of(s).Records)
		for i, r := range got {
			require.LessOrEqual(t, r.Since, r.At)
			since := func(a event) bool { return a.device == r.ID && a.at == r.Since }
			require.True(t, slices.ContainsFunc(all, since))
			// It depends on the order if a record was deleted meanwhile, and idle since on events that arrive late.
			got[i].Since = 0
			if i < len(wanted) && wanted[i].IdleSince != 0 && r.IdleSince != 0 {
				require.LessOrEqual(t, r.IdleSince, wanted[i].IdleSince)
				got[i].IdleSince = wanted[i].IdleSince
			}
		}
		require.Equal(t, wanted, got)
	}
}

// TestDeviceRule plays random events in random orders, within and beyond the window, often at the same time.
func TestDeviceRule(t *testing.T) {
	window := Instant(deviceWindow.Milliseconds())
	rapid.Check(t, func(t *rapid.T) {
		spread := rapid.SampledFrom([]Instant{2, window, window + 1, 3 * window}).Draw(t, "spread")
		checkRule(t, rapid.SliceOfN(drawEvent(3, spread), 1, 12).Draw(t, "events"))
	})
}

// TestManyDevices: the rule holds for the records that are kept if there are more devices than that. A tab that stays
// open keeps its user present, also if many others are closed after it was last active.
func TestManyDevices(t *testing.T) {
	s, d := event{device: "tab", at: base}.apply(State{}, Devices{})
	for i := range 2 * MaxDevices {
		s, d = event{device: fmt.Sprint(i), at: base + 1, gone: true}.apply(s, d)
		require.False(t, s.Left, "%d others left", i+1)
	}
	rapid.Check(t, func(t *rapid.T) {
		checkRule(t, rapid.SliceOfN(drawEvent(2*MaxDevices, 14), MaxDevices, 4*MaxDevices).Draw(t, "events"))
	})
}

// TestWindowsDiffer: while servers have different settings, time does not move back either, and a user leaves only by a
// leave at the last-seen time.
func TestWindowsDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		var d Devices
		last, byes := Instant(0), map[Instant]bool{}
		for _, a := range rapid.SliceOfN(drawEvent(3, 30), 1, 20).Draw(t, "events") {
			if a.device == "" {
				s, d = a.apply(s, d)
			} else {
				window := time.Duration(rapid.IntRange(1, 20).Draw(t, "window")) * time.Millisecond
				s, d = d.Assert(s, window, DeviceRecord{ID: a.device, At: a.at, Gone: a.gone})
			}
			last = max(last, a.at)
			byes[a.at] = byes[a.at] || a.gone
			require.Equal(t, last, s.At)
			require.True(t, !s.Left || byes[last])
		}
	})
}

// TestDevicesOfState: what a state says about devices that were recorded before.
func TestDevicesOfState(t *testing.T) {
	s, d := event{device: "a", at: base}.apply(State{}, Devices{})
	require.Equal(t, d, d.Of(s))
	require.True(t, d.Of(State{At: base + 1, Left: true}).Records[0].Gone, "a leave by a server that knows no devices")
	require.Len(t, d.Of(State{At: base + 10}).Records, 1)
	require.Equal(t, Devices{}, d.Of(State{At: base + 11}))
	require.False(t, d.Records[0].Gone)
}

// TestIdle: a device is idle since the first event that says so, until one says otherwise.
func TestIdle(t *testing.T) {
	var s State
	var d Devices
	for _, step := range []struct{ at, idle, want Instant }{
		{1, 0, 0},
		{2, 2, 2},
		{4, 4, 2},
		{3, 3, 2},
		{1, 0, 2},
		{5, 0, 0},
		{4, 4, 0},
		{6, 6, 6},
		{6, 0, 6},
		{7, 9, 6},
		{8, 0, 0},
		{9, 20, 9},
	} {
		a := event{device: "a", at: base + step.at}
		if step.idle != 0 {
			a.idle = base + step.idle
		}
		s, d = a.apply(s, d)
		require.Equal(t, step.want, max(0, d.Records[0].IdleSince-base), step)
	}
	s, d = event{device: "a", at: base + 10, gone: true, idle: base + 9}.apply(s, d)
	require.Zero(t, d.Records[0].IdleSince)
	_, d = event{device: "a", at: base + 11, idle: base + 11}.apply(s, d)
	require.Equal(t, base+11, d.Records[0].IdleSince)
}

// TestIdleUserStaysIdle: a device that is first active while nobody uses it does not show that the person was there. A
// user who is idle has been so for as long as before, also once the other devices are gone.
func TestIdleUserStaysIdle(t *testing.T) {
	for name, test := range map[string]struct {
		before []event
		want   Instant
	}{
		"idle":           {[]event{{device: "a", at: base, idle: base - 5}, {device: "b", at: base, idle: base - 3}}, base - 3},
		"used":           {[]event{{device: "a", at: base, idle: base - 5}, {device: "b", at: base}}, base + 2},
		"unknown":        {nil, base + 2},
		"back":           {[]event{{device: "a", at: base, idle: base - 5}, {device: "new", at: base, gone: true}}, base - 5},
		"left":           {[]event{{device: "a", at: base, idle: base - 5}, {at: base + 1, gone: true}}, base + 2},
		"too long ago":   {[]event{{device: "a", at: base - 9, idle: base - 9}}, base + 2},
		"received later": {[]event{{device: "a", at: base + 4, idle: base + 3}}, base + 2},
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			var d Devices
			for _, a := range append(test.before, event{device: "new", at: base + 2, idle: base + 2}) {
				s, d = a.apply(s, d)
			}
			i := slices.IndexFunc(d.Records, func(r DeviceRecord) bool { return r.ID == "new" })
			require.Equal(t, test.want, d.Records[i].IdleSince)
		})
	}
}

func TestLiveAndActivity(t *testing.T) {
	var s State
	var d Devices
	activity := func(at Instant) string {
		idle, live := d.Activity(at)
		return fmt.Sprint(int64(max(0, idle-base)), live)
	}
	require.Equal(t, "0 false", activity(base))
	for _, a := range []event{
		{device: "a", at: base + 5, idle: base + 1},
		{device: "b", at: base + 6, idle: base + 3},
		{device: "c", at: base + 7},
		{device: "c", at: base + 8, gone: true, idle: base + 8},
	} {
		s, d = a.apply(s, d)
	}
	require.Len(t, d.Records, 3)
	require.Len(t, d.Live(s.At), 2)
	require.Equal(t, "3 true", activity(s.At), "the latest of those that are idle; c is gone")
	require.Equal(t, "3 true", activity(base+16))
	require.Equal(t, "0 false", activity(base+17))
	s, d = event{device: "d", at: base + 9}.apply(s, d)
	require.Equal(t, "0 true", activity(s.At), "one is used")
	_, d = event{device: "d", at: base + 10, idle: base + 20}.apply(s, d)
	require.Equal(t, "10 true", activity(base+10), "not idle later than received")
}

func TestDeviceWindow(t *testing.T) {
	usual := Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}
	require.Equal(t, 150*time.Second, DeviceWindow(usual, 30*time.Second))
	require.Equal(t, time.Millisecond, DeviceWindow(Thresholds{Green: 1}, 1), "rounded up")
	longest := DeviceWindow(Thresholds{Green: MaxDuration, Yellow: MaxDuration}, MaxDuration)
	require.Equal(t, 3*MaxDuration, longest)
	require.Negative(t, base.Add(-longest).Add(-longest), "no overflow")
}

func TestCheckDevice(t *testing.T) {
	for id, want := range map[string]string{
		"a":                                 "",
		"tab 1/2 ü":                         "",
		strings.Repeat("x", MaxDeviceLen):   "",
		"":                                  "empty",
		strings.Repeat("x", MaxDeviceLen+1): "65 bytes",
		"a\xff":                             "UTF-8",
		"a\n":                               "control",
		"a\u0085":                           "control",
		"\u202ea":                           "bidirectional",
	} {
		if err := CheckDevice(id); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// TestDeviceWithoutKind: an event that names none keeps the kind.
func TestDeviceWithoutKind(t *testing.T) {
	var s State
	var d Devices
	for _, test := range []struct {
		at         Instant
		kind, want DeviceKind
		gone       bool
	}{
		{at: base, kind: "", want: Other},
		{at: base + 1, kind: Web, want: Web},
		{at: base + 2, kind: "", want: Web},
		{at: base + 1, kind: Mobile, want: Web},
		{at: base + 3, kind: "", gone: true, want: Web},
		{at: base + 4, kind: Mobile, want: Mobile},
	} {
		r := DeviceRecord{ID: "tab", Kind: test.kind, Since: test.at, At: test.at, Gone: test.gone}
		s, d = d.Assert(s, time.Minute, r)
		require.Equal(t, test.want, d.Records[0].Kind)
	}
}
