package store

import (
	"maps"
	"slices"

	"github.com/lastseen/lastseen"
)

// Kept is all that a store keeps of a user, but for calls: what is copied from one store to another. The zero value
// is that of an unknown user.
type Kept struct {
	State   lastseen.State
	Devices lastseen.Devices
	Meta    map[string]string // what clients sent about devices, by the ID of the record; no text is empty

	Availability lastseen.AvailabilityState // what others see; it may have ended
	Hidden       KeptHidden

	Contacts []string         // in bytewise order
	Used     lastseen.Instant // the last use of the contacts that is known; 0 without contacts, and for none
}

// KeptHidden is the hidden time of a user, and what the user alone sees of their availability. The zero value is that
// of a user without one.
type KeptHidden struct {
	lastseen.HiddenTime
	Until lastseen.Instant // of the user's availability; 0 for no end
	Note  string
}

// Equal reports whether two users have the same.
func (k Kept) Equal(other Kept) bool {
	a, b := k.Devices, other.Devices
	return k.State == other.State && a.Window == b.Window && a.Left == b.Left && slices.Equal(a.Records, b.Records) &&
		maps.Equal(k.Meta, other.Meta) && k.Availability == other.Availability && k.Hidden == other.Hidden &&
		slices.Equal(k.Contacts, other.Contacts) && k.Used == other.Used
}

// KeptChange replaces what a store keeps of a user.
type KeptChange struct {
	User     string
	Was, Now Kept
}
