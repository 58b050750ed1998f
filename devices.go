package lastseen

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The limits of devices.
const (
	MaxDeviceLen = 64   // bytes of a device's ID
	MaxMetaLen   = 1024 // bytes of what a client says about a device
	MaxDevices   = 32   // records of one user
)

// DeviceKind is what a client says that a device is.
type DeviceKind string // @name DeviceKind

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

// ParseDeviceKind returns the kind with this name; "" for an empty one, which leaves the kind of a record as it is.
func ParseDeviceKind(s string) (DeviceKind, error) {
	kind := DeviceKind(s)
	if kind != "" && !slices.Contains(DeviceKinds(), kind) {
		return "", fmt.Errorf("the kind of device %s is unknown: use web, mobile, desktop, service or other", quote(s))
	}
	return kind, nil
}

// CheckDevice returns an error unless s is a valid ID of a device: 1 to 64 bytes that pass [CheckText]. IDs are
// compared byte for byte.
func CheckDevice(s string) error {
	switch {
	case s == "":
		return errors.New("the device's id is missing or empty: use 1 to 64 bytes of UTF-8")
	case len(s) > MaxDeviceLen:
		return fmt.Errorf("the device's id has %d bytes: at most %d are allowed", len(s), MaxDeviceLen)
	}
	return CheckText("the device's id", s)
}

// DeviceWindow returns for how long a device counts that has not left: 2 × green + the ping interval, rounded
// up to a millisecond.
func DeviceWindow(t Thresholds, pingInterval time.Duration) time.Duration {
	window := 2*t.Green + pingInterval
	return (window + time.Millisecond - 1).Truncate(time.Millisecond)
}

// DeviceRecord is what is kept of one device of a user, or of one connection.
type DeviceRecord struct {
	ID string // of the record: that of the device, or of a connection of the device
	// Kind is what the newest event that named one said; Other if none did. In an event it may be empty.
	Kind DeviceKind
	// Since is when the record was first active, and At the newest time that it asserted, by a ping or a leave. A
	// record that was deleted and is active again has a later Since.
	Since, At Instant
	Gone      bool // it left at At, or the user has left on all devices since
	// IdleSince is since when the person does not use the device; 0 while they do, and once it is gone. It begins with
	// the first event that says so, or before it, if the user was idle. One that says otherwise and arrives late
	// does not change it.
	IdleSince Instant
}

// compare orders events of one record: the greater one counts.
func (r DeviceRecord) compare(other DeviceRecord) int {
	return cmp.Or(State{r.At, r.Gone}.Compare(State{other.At, other.Gone}), cmp.Compare(r.IdleSince, other.IdleSince))
}

// Devices is what is kept of the devices of one user. The zero value is a user without devices.
//
// The rule: a user's last-seen time is the newest that anything asserted, and never moves back. The user has left if
// that newest event is a leave and no record that has not left was active within the window before it. So
// events commute, and may arrive late or twice.
//
// A user has at most MaxDevices records. For one more, the oldest record that left is deleted, but not the
// newest of all, which shows that the user left; if no other record did, the oldest one. At the same time, records with
// lower IDs are newer.
//
// A ping without a device is [State.AfterPing], and does not change Devices.
type Devices struct {
	Window  time.Duration  // of the last event of a device: see [DeviceWindow]; 0 if there was none
	Left    Instant        // the newest leave on all devices; 0 for none that matters
	Records []DeviceRecord // the newest first
}

// Assert records what a device asserted about itself: a ping or, with Gone, a leave. It returns the resulting state
// of a user in state s, and what is kept then. An event older than the window against that state makes no record. A
// device that begins idle does not show that the person was there: an idle user has been so all the time.
func (d Devices) Assert(s State, window time.Duration, r DeviceRecord) (State, Devices) {
	if r.IdleSince >= r.At {
		if idle, _ := d.Of(s).Activity(r.At); idle != 0 {
			r.IdleSince = idle
		}
	}
	d = d.from(s)
	d.Window = window
	d.Records = d.merge(r)
	return d.settle(max(s.At, r.At))
}

// Leave records that the user left at a time, on all devices: the records up to that time are gone.
func (d Devices) Leave(s State, left Instant) (State, Devices) {
	d = d.from(s)
	d.Left = max(d.Left, left)
	return d.settle(max(s.At, left))
}

// Of returns what is kept of a user in state s, which may have changed without devices since: by pings without a
// device, or by a leave that was recorded in the state alone.
func (d Devices) Of(s State) Devices {
	_, d = d.from(s).settle(s.At)
	return d
}

// from returns d as it is for a user in state s: a user who left, and not by a device, left on all devices.
func (d Devices) from(s State) Devices {
	bye := func(r DeviceRecord) bool { return r.Gone && r.At == s.At }
	if s.Left && !slices.ContainsFunc(d.Records, bye) {
		d.Left = max(d.Left, s.At)
	}
	return d
}

// merge returns the records with another event.
func (d Devices) merge(r DeviceRecord) []DeviceRecord {
	r.Since, r.IdleSince = min(r.Since, r.At), min(r.IdleSince, r.At)
	if r.Gone {
		r.IdleSince = 0
	}
	records := slices.Clone(d.Records)
	i := slices.IndexFunc(records, func(old DeviceRecord) bool { return old.ID == r.ID })
	if i < 0 {
		r.Kind = cmp.Or(r.Kind, Other)
		return append(records, r)
	}
	old := &records[i]
	r.Kind = cmp.Or(r.Kind, old.Kind)
	since, idle := min(old.Since, r.Since), min(old.IdleSince, r.IdleSince)
	if r.compare(*old) >= 0 {
		*old = r
	}
	old.Since = since
	if old.IdleSince != 0 && idle != 0 { // still idle
		old.IdleSince = idle
	}
	return records
}

// settle deletes what does not matter any longer for a user last seen at a time, and returns the user's state and what
// is left. Without a window there are no records, and Left is kept for those that may come.
func (d Devices) settle(at Instant) (State, Devices) {
	from := at.Add(-d.Window)
	bye := d.Left == at
	var kept []DeviceRecord
	for _, r := range d.Records {
		if r.At <= d.Left {
			r.Gone, r.IdleSince = true, 0
		}
		if r.At >= from {
			kept = append(kept, r)
		}
		bye = bye || r.Gone && r.At == at
	}
	slices.SortFunc(kept, func(a, b DeviceRecord) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.ID, b.ID))
	})
	if d.Records = kept; len(kept) > MaxDevices {
		i := len(kept) - 1
		for i > 0 && !kept[i].Gone {
			i--
		}
		i = cmp.Or(i, len(kept)-1)
		d.Records = slices.Delete(kept, i, i+1)
	}
	if d.Window > 0 && d.Left < from {
		d.Left = 0
	}
	if len(d.Records) == 0 && d.Left == 0 {
		d = Devices{}
	}
	return State{At: at, Left: bye && len(d.Live(at)) == 0}, d
}

// Live returns the records that have not left and were active within the window before a time.
func (d Devices) Live(at Instant) []DeviceRecord {
	var live []DeviceRecord
	for _, r := range d.Records {
		if !r.Gone && r.At >= at.Add(-d.Window) {
			live = append(live, r)
		}
	}
	return live
}

// Activity returns since when the person uses none of the devices that are live at a time: 0 while they use one. It
// returns false if no device is live.
func (d Devices) Activity(at Instant) (idleSince Instant, live bool) {
	for _, r := range d.Live(at) {
		if r.IdleSince == 0 {
			return 0, true
		}
		idleSince = max(idleSince, r.IdleSince)
	}
	return idleSince, idleSince != 0
}
