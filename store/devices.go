package store

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen"
)

// ErrNoDevices means that the namespace cannot have devices, as long as settings do not change: other programs also
// write it.
var ErrNoDevices = errors.New("the namespace has no devices")

// Devices keeps on which devices users are: see [lastseen.Devices], whose rule every store follows.
//
// Assertions of devices commute with each other, and with pings and leaves. A ping of [Writer] is of no device: it
// raises the user's time, and makes no record. A leave of Writer is of all devices: in a namespace that has had a
// device, or with several shards in such a shard, it marks all records gone up to its time, also those reported later.
// Trim, Forget and DeleteNamespace delete the records of the users that they delete.
type Devices interface {
	// RecordDevices records what devices asserted, in the order given, and returns the resulting states like Ping:
	// a user named twice has the same, final, state twice. Window is that of [lastseen.DeviceWindow]. Times too far
	// ahead are replaced, and namespaces created, as by Ping. It returns ErrNoDevices, and records nothing, if the
	// namespace cannot have devices.
	RecordDevices(
		ctx context.Context, namespace string, window time.Duration, batch []DeviceEvent,
	) ([]lastseen.State, error)

	// ReadDevices returns the records of a user, the newest first; none for a user without devices.
	ReadDevices(ctx context.Context, namespace, user string) (UserDevices, error)
}

// DeviceEvent is one ping or leave of a device.
type DeviceEvent struct {
	User string
	ID   string              // of the record
	Kind lastseen.DeviceKind // "" leaves what is stored as it is; a record made without one is lastseen.Other
	At   lastseen.Instant
	Gone bool             // a leave
	Idle lastseen.Instant // since when the person does not use the device; 0 while they do
	// Meta is a JSON object of at most MaxMetaLen bytes that the client sent about the device; "" leaves what is stored
	// as it is.
	Meta string
}

// Record returns what the event asserts.
func (s DeviceEvent) Record() lastseen.DeviceRecord {
	return lastseen.DeviceRecord{ID: s.ID, Kind: s.Kind, Since: s.At, At: s.At, Gone: s.Gone, IdleSince: s.Idle}
}

// UserDevices are the devices of one user at one moment.
type UserDevices struct {
	State lastseen.State
	lastseen.Devices
	Meta []string // of each record; "" for none
}

// MaxDeviceBatch is the largest batch of RecordDevices.
const MaxDeviceBatch = 10_000
