package store

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen"
)

// The errors of availability.
var (
	// ErrNoAvailability means that users of the namespace cannot say anything, as long as settings do not change: other
	// programs also write it.
	ErrNoAvailability = errors.New("the namespace has no availability")
	// ErrEvicts means that a user cannot become invisible, because the store may lose what hides them: it is a Redis
	// that deletes any key when its memory is full. Nothing was recorded.
	ErrEvicts = errors.New("the store may evict what hides users")
)

// Availabilities keeps the availability of users: see [lastseen.AvailabilityState]. A user's availability is theirs,
// not that of a device.
//
// # Availability
//
// A user's availability stays until it is replaced, until [lastseen.AvailabilityState.Until], or until Forget or
// DeleteNamespace deletes it. Trim does not delete it, so it can be that of a user without a state, who is then shown
// as never seen. It ends by itself: stores return what ended until they delete it, and callers evaluate it with
// [lastseen.AvailabilityState.At], at the time at which they evaluate statuses, or at the present if that is later. So
// it ends at the same instant for everyone, also without a feed. Stores delete it once both their clock and the time
// that a caller passes are past the end, so that one wrong clock deletes nothing.
//
// Unlike pings, calls of SetAvailability do not commute: the last one counts. Repeating one is harmless unless another
// one came in between.
//
// # Invisible
//
// For all methods but ReadAvailability, a user who became invisible at a time T equals a user who left at T:
//
//   - Becoming invisible is a Leave on all devices. T is the call's time, bounded like that of a ping, or the user's
//     time if that is later. What others see of the user's availability stays as it is, as after a Leave.
//   - From then on the user has a hidden time: see [lastseen.HiddenTime]. Every ping, leave and event of a device
//     that it hides changes nothing: no state, no record of a device, no entry of a feed, and no namespace is created.
//     The call succeeds and returns the state that others see. A hidden event is not kept, so it is not shown later
//     either.
//   - An event that is not hidden, but reports that a device has been idle since a time that is, counts as idle since
//     its own time.
//   - Setting another availability, or none, ends the hidden time at the call's time; it ends at Until by itself. This
//     changes nothing that others see, except that it then replaces the availability before. The next ping after the
//     end makes the user present.
//   - An invisible user who sets Invisible again changes only the end and the note: the state stays as it is. After
//     the end, setting Invisible again is a new leave.
//
// What ended stays hidden: a ping from the hidden time that arrives later changes nothing. Stores remember an ended
// hidden time for HiddenKept at least, through Trim, RemoveEmpty and restarts, and use it as long as they have it.
// Forget and DeleteNamespace delete it: nothing is left of a user who is forgotten, and pings that arrive after that
// count, whatever their time is.
//
// No read takes longer or shorter because a user is invisible: what they say is kept apart from what others see, and
// only ReadAvailability reads it.
//
// # In the feed
//
// Published has what others see: its availability and [Details.IdleSince]. They are judged at the watermark, as the
// status is.
//
//   - A call of SetAvailability that changes what is published appends one entry, atomically with the write.
//   - Becoming invisible appends what the leave appends.
//   - AdvanceChanges appends an entry for each user whose availability ends on the way, in the order of the ends and
//     transitions. The end of a hidden time is none.
//   - Each entry has everything that is published of its user, whatever changed, and what was published before.
//   - An entry of a user who is forgotten has no availability. It is appended if others could see a state or
//     an availability.
//
// # Namespaces
//
// SetAvailability creates a namespace like Ping, unless it clears the availability. RemoveEmpty keeps a namespace in
// which a user has an availability that others see and that has not ended. It does not keep one for a hidden time,
// since that would show it: the namespace does not exist any longer then, but what is hidden in it stays, and does not
// create it: neither do pings in the hidden time, nor an invisible user who sets Invisible again. DeleteNamespace
// deletes all of it. Names and times passed in are valid, and notes pass [lastseen.CheckNote].
type Availabilities interface {
	// SetAvailability records a user's availability now, in place of the availability before; the zero value clears it,
	// and so does an end alone. At is the present by Now of the store, bounded by its clock like the time of a ping.
	// What has ended by then is recorded as nothing. It returns the state that others see. The embedded store returns
	// after the change is on the disk. It returns ErrNoAvailability, and records nothing, if the namespace cannot have
	// any, and ErrEvicts only for Invisible.
	SetAvailability(
		ctx context.Context, namespace, user string, availability lastseen.AvailabilityState, at lastseen.Instant,
	) (lastseen.State, error)

	// ReadAvailability returns a user's availability, also if it is Invisible, or has ended. If an invisible user's
	// hidden time has ended by itself, that is the availability before, which others see. It returns nothing in a
	// namespace that cannot have any. It is for the user, and for callers that may write for the user.
	ReadAvailability(
		ctx context.Context, namespace, user string, at lastseen.Instant,
	) (lastseen.AvailabilityState, error)

	// Describe returns the users' states in the order asked, the zero state for those never seen, and the details of
	// users who have some, each with the state of the same moment. The map is nil if none has. In a namespace in which
	// nobody has set an availability, and no device has been idle, the details cost nothing.
	Describe(ctx context.Context, namespace string, users []string) ([]lastseen.State, map[string]Details, error)

	// ReadDetails returns the details of users whose states are known, as a page of List. Those of a user whose state
	// has changed since are of before or after the change. It costs nothing in a namespace in which no user has set
	// anything, and no device has been idle.
	ReadDetails(ctx context.Context, namespace string, records []Record) (map[string]Details, error)
}

// Details is what others see of a user besides the state.
type Details struct {
	Availability lastseen.AvailabilityState // never Invisible; it may have ended
	// IdleSince is since when the user uses none of the devices that are live: see [lastseen.Devices.Activity]. It is 0
	// while the user uses one, and without a live device. It was computed when a device last asserted something. A
	// user who is grey is not shown as idle.
	IdleSince lastseen.Instant
	// InCallUntil is until when the user is in a call; 0 for not. It may have passed. A user who is grey is not shown
	// to be in a call. See [Calls].
	InCallUntil lastseen.Instant
}

const (
	// HiddenKept is how long, at least, pings from a hidden time that ended stay hidden.
	HiddenKept = 30 * 24 * time.Hour
	// MaxEnds is the number of users whose availability one call of AdvanceChanges ends, in each shard, unless more end
	// in the same millisecond.
	MaxEnds = 250
)
