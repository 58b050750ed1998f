package webhooks

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
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
	Test     = "test"              // somebody tries whether events arrive
)

const (
	maxUsers = 200      // in an event
	maxBody  = 64 << 10 // bytes of an event, unless a single user takes more
	maxEnd   = 32       // bytes after the users
)

// event is what a receiver is sent. Its bytes and its ID never change: it is kept in the store as it is.
type event struct {
	ID    string
	Kind  string
	Body  []byte
	Users int
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
	var sent struct {
		Data struct {
			Users []json.RawMessage
			More  bool
		}
	}
	if err := json.Unmarshal(whole.Body, &sent); err != nil || len(sent.Data.Users) < 2 {
		return nil, false
	}
	users := make([][]byte, len(sent.Data.Users))
	for k, u := range sent.Data.Users {
		users[k] = u
	}
	half := len(users) / 2
	return []event{
		e.event(whole.Kind, users[:half], false), e.event(whole.Kind, users[half:], !sent.Data.More),
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
	return event{ID: newID(), Kind: kind, Body: append(b, "}}"...), Users: len(presences)}
}

// test returns an event about no namespace, that says nothing.
func test(webhook string, at lastseen.Instant) event {
	b := at.Append([]byte(`{"type":"` + Test + `","timestamp":"`))
	b = append(append(b, `","data":{"webhook":"`...), webhook...) // its name needs no escapes
	return event{ID: newID(), Kind: Test, Body: append(b, `"}}`...)}
}

// newID returns an ID that no other event has.
func newID() string {
	var random [20]byte
	_, _ = rand.Read(random[:]) // never fails
	return "msg_" + strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))
}
