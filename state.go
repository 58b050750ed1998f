package lastseen

import "cmp"

// State is all that is stored about a user: the time of the newest ping or leave, and whether it was a leave. The zero
// State means never seen.
type State struct {
	At   Instant // last seen; 0 means never seen
	Left bool    // the user went away at At
}

// Known reports whether the user has ever been seen.
func (s State) Known() bool { return s.At != 0 }

// Compare orders states: the later time is greater, and at the same millisecond left is greater than present. It
// returns -1, 0 or +1.
func (s State) Compare(other State) int {
	switch c := cmp.Compare(s.At, other.At); {
	case c != 0 || s.Left == other.Left:
		return c
	case other.Left:
		return -1
	default:
		return +1
	}
}

// Merge returns the greater of two states. It is commutative, associative and idempotent, so pings and leaves may
// arrive late, twice or in any order.
func Merge(a, b State) State {
	if a.Compare(b) < 0 {
		return b
	}
	return a
}

// AfterPing returns the state that results when a ping at the given time reaches a user in state s.
func (s State) AfterPing(at Instant) State {
	return Merge(s, State{At: at})
}

// AfterLeave returns the state that results when a leave at the given time reaches a user in state s.
func (s State) AfterLeave(at Instant) State {
	return Merge(s, State{At: at, Left: true})
}

// Range selects the users of one half of a namespace, present or left, by last-seen time. It includes both ends.
type Range struct {
	Left     bool // users who left, instead of users present
	From, To Instant
}

// Contains reports whether a user in state s is selected.
func (r Range) Contains(s State) bool {
	return s.Known() && s.Left == r.Left && r.From <= s.At && s.At <= r.To
}
