package session

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/request"
)

// maxQueued is the number of frames that wait for a slow client. More are dropped.
const maxQueued = 32

// sendQueue has what a session sends although its client did not ask for it, besides what it follows. While something
// waits there, a goroutine sends it, but not before the frame welcome. The mutex of the session guards it.
type sendQueue struct {
	own    bool     // the mailbox has something
	frames [][]byte // in order
}

// isShownSelf reports whether a session is sent the availability of its user.
func (n *session) isShownSelf() bool {
	return n.device != nil && !n.currentCaller().IsBlind(n.namespace)
}

// isShownCalls reports whether a session is sent the calls of its user. A key needs its own scope read, as over
// HTTP: what anyone can read does not include calls.
func (n *session) isShownCalls() bool {
	return n.device != nil && n.currentCaller().CanReadCalls(n.namespace)
}

// sendSoon has a frame sent without waiting for the client; nil stands for what the mailbox has. It returns false if
// too much waits.
func (n *session) sendSoon(frame []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	begins := n.welcomed && n.sends == nil
	if n.sends == nil {
		n.sends = &sendQueue{}
	}
	switch q := n.sends; {
	case frame == nil:
		q.own = true
	case len(q.frames) >= maxQueued:
		return false
	default:
		q.frames = append(q.frames, frame)
	}
	if begins {
		go n.sendQueued()
	}
	return true
}

// sendQueued sends what waits, until nothing does or the client is gone.
func (n *session) sendQueued() {
	defer func() { n.recovered(recover()) }()
	for {
		own, frame := n.nextQueued()
		switch {
		case own:
			n.sendOwn()
		case frame != nil:
			n.send(frame)
		default:
			return
		}
	}
}

// nextQueued returns what to send next; nothing at the end, and then the goroutine ends.
func (n *session) nextQueued() (own bool, frame []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.sends
	switch {
	case n.ctx.Err() != nil:
	case q.own:
		q.own = false
		return true, nil
	case len(q.frames) > 0:
		frame, q.frames = q.frames[0], q.frames[1:]
		return false, frame
	}
	n.sends = nil
	return false, nil
}

// sendOwn sends the client what has changed of its user's own state.
func (n *session) sendOwn() {
	availability, calls := n.mailbox.take()
	defer n.mailbox.sent()
	if availability != nil {
		n.renew()
		if n.isShownSelf() {
			n.send(append(appendAvailability([]byte(`{"self":{`), *availability), '}', '}'))
		}
	}
	if len(calls) > 0 && n.isShownCalls() {
		for _, c := range calls {
			n.send(append(appendShown([]byte(`{"call":`), ShowCall(c)), '}'))
		}
	}
}

// renew records the connection again after the user has set the availability: the store may have dropped its record.
// The client's response to the ping shows that the user is here. That of an invisible user shows nothing, but a client
// that is not shown the availability must not learn from pings when that is.
func (n *session) renew() {
	n.device.Renew()
	n.sent(n.socket.Ping())
}

// appendAvailability appends the availability of a user as fields of JSON, null for what is not set.
func appendAvailability(b []byte, availability lastseen.AvailabilityState) []byte {
	b = appendOptional(append(b, `"availability":`...), string(availability.Availability))
	b = appendOptional(append(b, `,"note":`...), availability.Note)
	return request.Timestamp(availability.Until).AppendJSON(append(b, `,"until":`...))
}

// appendOptional appends a string as JSON: null for an empty one.
func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return request.AppendString(b, s)
}

// appendSelf appends the field self of the frame welcome: the user's own presence, and availability.
func (n *session) appendSelf(b []byte, t lastseen.Thresholds, own beginning) []byte {
	b = n.Show.Self(append(b, `,"self":{`...), n.user, n.device.State(), t, own.now)
	return append(appendAvailability(append(b, ','), own.availability), '}')
}

// appendCalls appends the calls of a user as a list.
func appendCalls(b []byte, calls []lastseen.Call) []byte {
	b = append(b, '[')
	for i, c := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendShown(b, ShowCall(c))
	}
	return append(b, ']')
}
