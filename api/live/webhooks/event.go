package webhooks

import (
	"crypto/rand"
	"encoding/base32"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/feed"
)

// The types of events.
const (
	Changed  = "presence.changed"  // users who changed
	Reset    = "presence.reset"    // changes may be missing: a snapshot follows
	Snapshot = "presence.snapshot" // a part of all users who are not grey, and of users who changed meanwhile
)

const (
	maxUsers = 200      // in an event
	maxBody  = 64 << 10 // bytes of an event, unless a single user takes more
	maxEnd   = 32       // bytes after the users
)

// event is what a receiver is sent. Its bytes and its ID never change.
type event struct {
	id    string
	body  []byte
	users int

	// What halves it.

	kind     string
	presence [][]byte // of each user
	last     bool     // no further part of a snapshot follows
}

// encoder makes the events of a namespace.
type encoder struct {
	namespace string
	at        lastseen.Instant
	append    func(b []byte, u feed.Update) []byte
}

// changed returns the events of changes.
func (e encoder) changed(changes []change) []event {
	presences := make([][]byte, len(changes))
	for k, c := range changes {
		b := e.append([]byte{'{'}, c.Update)
		if was := c.Was.Status; was != "" && c.Known() {
			b = append(append(append(b, `,"previous":"`...), was...), '"')
		}
		presences[k] = append(b, '}')
	}
	return e.split(Changed, presences, true)
}

// snapshot returns the events of users of a snapshot, of which more may follow. There is at least one.
func (e encoder) snapshot(users []feed.Update, more bool) []event {
	presences := make([][]byte, len(users))
	for k, u := range users {
		presences[k] = append(e.append([]byte{'{'}, u), '}')
	}
	return e.split(Snapshot, presences, !more)
}

// reset returns the event that says that changes may be missing.
func (e encoder) reset() event { return e.event(Reset, nil, true) }

// split returns events with all presences, none larger than allowed.
func (e encoder) split(kind string, presences [][]byte, last bool) (events []event) {
	for {
		n := e.fitting(kind, presences)
		rest := presences[n:]
		events = append(events, e.event(kind, presences[:n], last && len(rest) == 0))
		if presences = rest; len(rest) == 0 {
			return events
		}
	}
}

// fitting returns how many of some presences fit into one event; at least one, if there are any.
func (e encoder) fitting(kind string, presences [][]byte) (n int) {
	size := len(e.head(kind)) + maxEnd
	for n < min(len(presences), maxUsers) {
		size += len(presences[n]) + len(",")
		if n > 0 && size > maxBody {
			break
		}
		n++
	}
	return n
}

// halves returns two events instead of one that the receiver finds too large, and false if it has no two users.
func (e encoder) halves(whole event) (halves []event, ok bool) {
	half := len(whole.presence) / 2
	if half == 0 {
		return nil, false
	}
	return []event{
		e.event(whole.kind, whole.presence[:half], false), e.event(whole.kind, whole.presence[half:], whole.last),
	}, true
}

func (e encoder) head(kind string) []byte {
	b := append([]byte(`{"type":"`), kind...)
	b = append(b, `","timestamp":"`...)
	b = e.at.Append(b)
	b = append(append(b, `","data":{"namespace":"`...), e.namespace...) // its name needs no escapes
	return append(b, '"')
}

func (e encoder) event(kind string, presences [][]byte, last bool) event {
	b := e.head(kind)
	if kind != Reset {
		b = append(b, `,"users":[`...)
		for k, p := range presences {
			if k > 0 {
				b = append(b, ',')
			}
			b = append(b, p...)
		}
		b = append(b, ']')
	}
	if kind == Snapshot {
		b = strconv.AppendBool(append(b, `,"more":`...), !last)
	}
	return event{
		id: newID(), body: append(b, "}}"...), users: len(presences), kind: kind, presence: presences, last: last,
	}
}

// newID returns an ID that no other event has.
func newID() string {
	var random [20]byte
	_, _ = rand.Read(random[:]) // never fails
	return "msg_" + strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))
}
