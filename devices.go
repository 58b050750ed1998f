package lastseen

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of devices.
const (
	MaxDeviceLen = 64   // bytes of a device's ID
	MaxMetaLen   = 1024 // bytes of what a client says about a device
	MaxDevices   = 32   // records of one user; those heard last are kept
)

// DeviceKind is what a client says that a device is.
type DeviceKind string

// The kinds of devices.
const (
	Web     DeviceKind = "web"
	Mobile  DeviceKind = "mobile"
	Desktop DeviceKind = "desktop"
	Service DeviceKind = "service"
	Other   DeviceKind = "other"
)

// DeviceKinds returns all kinds.
func DeviceKinds() []DeviceKind { return []DeviceKind{Web, Mobile, Desktop, Service, Other} }

// ParseDeviceKind returns the kind with this name; Other for an empty one.
func ParseDeviceKind(s string) (DeviceKind, error) {
	kind := cmp.Or(DeviceKind(s), Other)
	if !slices.Contains(DeviceKinds(), kind) {
		return "", fmt.Errorf("the kind of device %s is unknown: use web, mobile, desktop, service or other", quote(s))
	}
	return kind, nil
}

// CheckDevice returns an error unless s is a valid ID of a device: 1 to 64 bytes of UTF-8 without control characters.
// IDs are compared byte for byte.
func CheckDevice(s string) error {
	switch {
	case s == "":
		return errors.New("the device's id is empty: use 1 to 64 bytes of UTF-8")
	case len(s) > MaxDeviceLen:
		return fmt.Errorf("the device's id has %d bytes: at most %d are allowed", len(s), MaxDeviceLen)
	case !utf8.ValidString(s):
		return fmt.Errorf("the device's id %s is not valid UTF-8", quote(s))
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("the device's id %s has a control character", quote(s))
	}
	return nil
}

// DeviceWindow returns for how long a device counts that has not said goodbye: 2 × green + the ping interval, rounded
// up to a millisecond.
func DeviceWindow(t Thresholds, pingInterval time.Duration) time.Duration {
	window := 2*t.Green + pingInterval
	return (window + time.Millisecond - 1).Truncate(time.Millisecond)
}

// DeviceRecord is what is kept of one device of a user, or of one connection.
type DeviceRecord struct {
	ID   string // of the record: that of the device, or of a connection of the device
	Kind DeviceKind
	// Since is when the record was heard first, and At the newest time that it asserted, by a ping or by a goodbye.
	Since, At Instant
	Gone      bool    // the assertion at At was a goodbye
	IdleSince Instant // since when the person does not use the device; 0 while they do
}

// Devices is what is kept of the devices of one user. The zero value is a user without devices.
type Devices struct {
	Window  time.Duration  // that of the newest assertion: see [DeviceWindow]
	Left    Instant        // the newest leave of the user on all devices; 0 for none
	Records []DeviceRecord // at most MaxDevices, the newest first
}

// Live returns the records that have not said goodbye and count at an instant.
func (d Devices) Live(now Instant) []DeviceRecord {
	var live []DeviceRecord
	for _, r := range d.Records {
		if d.live(r, now) {
			live = append(live, r)
		}
	}
	return live
}

// live reports whether a record has not said goodbye and counts at an instant, which is one of the user's last-seen
// times.
func (d Devices) live(r DeviceRecord, at Instant) bool {
	return !r.Gone && r.At > d.Left && r.At >= at.Add(-d.Window)
}

// Assert records what a device asserted about itself: a ping or, with Gone, a goodbye. It returns the resulting state
// of a user in state s, and what is kept then.
//
// The rule: the last-seen time is the newest that anything asserted, and never moves back. The user has left if that
// newest assertion is a goodbye and no other record that has not said goodbye was heard within the window before it. So
// assertions commute, and may arrive late or twice. One that is older than the window makes no record.
func (d Devices) Assert(s State, window time.Duration, r DeviceRecord) (State, Devices) {
	d = d.from(s)
	d.Window = window
	at := max(s.At, r.At)
	if r.At >= at.Add(-window) {
		d.Records = d.merge(r)
	}
	return d.settle(at, s)
}

// Leave records that the user left at a time, on all devices.
func (d Devices) Leave(s State, left Instant) (State, Devices) {
	d = d.from(s)
	d.Left = max(d.Left, left)
	return d.settle(max(s.At, left), s)
}

// from returns d as it is for a user in state s: a user who left, and not by a device, left on all devices.
func (d Devices) from(s State) Devices {
	bye := func(r DeviceRecord) bool { return r.Gone && r.At == s.At }
	if s.Left && !slices.ContainsFunc(d.Records, bye) {
		d.Left = max(d.Left, s.At)
	}
	return d
}

// merge returns the records with another assertion.
func (d Devices) merge(r DeviceRecord) []DeviceRecord {
	records := slices.Clone(d.Records)
	i := slices.IndexFunc(records, func(old DeviceRecord) bool { return old.ID == r.ID })
	if i < 0 {
		return append(records, r)
	}
	old := &records[i]
	since := min(old.Since, r.Since)
	if (State{r.At, r.Gone}).Compare(State{old.At, old.Gone}) >= 0 {
		*old = r
	}
	old.Since = since
	return records
}

// settle deletes what does not count any longer, and returns the state of a user who was in state s before and was now
// last seen at a time.
func (d Devices) settle(at Instant, s State) (State, Devices) {
	from := at.Add(-d.Window)
	bye, live := d.Left == at, false
	var kept []DeviceRecord
	for _, r := range d.Records {
		if r.At < from {
			continue
		}
		kept = append(kept, r)
		bye = bye || r.Gone && r.At == at
		live = live || d.live(r, at)
	}
	slices.SortStableFunc(kept, func(a, b DeviceRecord) int {
		return cmp.Or(State{b.At, b.Gone}.Compare(State{a.At, a.Gone}), cmp.Compare(a.ID, b.ID))
	})
	d.Records = kept[:min(len(kept), MaxDevices)]
	if d.Left < from {
		d.Left = 0
	}
	if len(d.Records) == 0 && d.Left == 0 {
		d = Devices{}
	}
	return State{At: at, Left: bye && !live}, d
}
