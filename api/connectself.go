package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// ownSaid is what the user of a session says, as the client knows it.
type ownSaid struct {
	lastseen.Said
	end *time.Timer // reads it again when it ends; nil without an end
}

const (
	// minSelfEnd is the least time until what has an end is read again, if it has not ended by the store's clock yet.
	minSelfEnd = 10 * time.Millisecond
	// maxSelfEnd is the most: the store's clock can be set meanwhile.
	maxSelfEnd = time.Hour
)

// isShownSelf reports whether a session is sent what its user says.
func (n *session) isShownSelf() bool {
	return n.device != nil && !n.currentCaller().IsBlind(n.namespace)
}

// isShownCalls reports whether a session is sent the calls of its user. A key needs the scope read of its own, as over
// HTTP: what anyone can read does not include calls.
func (n *session) isShownCalls() bool {
	return n.device != nil && n.currentCaller().CanReadCalls(n.namespace)
}

// rereadSelf reads what a user says again, for the user's sessions.
func (s *Shared) rereadSelf(ctx context.Context, p lastseen.UserKey, sessions []*session, why news) error {
	server := s.newest.Load()
	now, err := server.Store.Now(ctx)
	if err != nil {
		return err
	}
	said, err := server.Store.ReadAvailability(ctx, p.Namespace, p.User, now)
	if err != nil {
		return err
	}
	for _, n := range sessions {
		n.setSelfSafely(said.At(now), now, why.renewed)
	}
	return nil
}

// setSelfSafely is setSelf in a goroutine that is not the session's: a defect ends this session alone.
func (n *session) setSelfSafely(said lastseen.Said, now lastseen.Instant, renewed bool) {
	defer func() { n.recovered(recover()) }()
	n.setSelf(said, now, renewed)
}

// readSelf returns what a user says at a time.
func (s *server) readSelf(n *session, now lastseen.Instant) (lastseen.Said, error) {
	said, err := s.Store.ReadAvailability(n.ctx, n.namespace, n.user, now)
	return said.At(now), err
}

// beginSelf notes that the client has got the frame welcome, with what its user said then, and the user's calls. What
// was to be sent meanwhile follows, since no frame can come before that.
func (n *session) beginSelf(said lastseen.Said, calls []lastseen.Call, now lastseen.Instant) {
	n.mu.Lock()
	n.welcomed = true
	n.noteSaid(said, now)
	n.noteCalls(calls, now)
	missed, renewed, missedCalls := n.selfMissed, n.selfRenewed, n.callsMissed
	if n.outbox != nil {
		go n.sendPosts()
	}
	n.mu.Unlock()
	if missed {
		n.selves.add(n.key(), news{renewed: renewed})
	}
	if missedCalls {
		n.calls.refresh(n.key())
	}
}

// setSelf sends the client what its user says, if it is something else than before. Renewed says that the user has said
// something since, perhaps the same: then the store may have dropped the record of the connection, and the client is
// sent it in any case. It may know something else, from the response to a request of its own that was done before
// another device's request.
func (n *session) setSelf(said lastseen.Said, now lastseen.Instant, renewed bool) {
	n.mu.Lock()
	if !n.welcomed {
		n.selfMissed, n.selfRenewed = true, n.selfRenewed || renewed
		n.mu.Unlock()
		return
	}
	before := n.noteSaid(said, now)
	tell := renewed || said != before
	device := n.device
	n.mu.Unlock()
	if tell && device != nil {
		device.Renew()
		// The client's answer shows that the user is here. That of an invisible user shows nothing, but a client that
		// is not shown what its user says must not learn from pings when that is.
		n.post(posted{ping: true})
	}
	if tell && n.isShownSelf() {
		n.post(posted{self: append(appendSaid([]byte(`{"self":{`), said), '}', '}')})
	}
}

// noteSaid notes what the user says, and returns what it was. The caller holds the mutex.
func (n *session) noteSaid(said lastseen.Said, now lastseen.Instant) (before lastseen.Said) {
	if n.self != nil {
		before = n.self.Said
		n.self.stop()
	}
	if n.self = nil; said == (lastseen.Said{}) {
		return before
	}
	n.self = &ownSaid{Said: said}
	if said.Until != 0 && n.ctx.Err() == nil {
		left := time.Duration(min(said.Until-now, lastseen.Instant(maxSelfEnd.Milliseconds()))) * time.Millisecond
		end := max(left, minSelfEnd)
		n.self.end = n.selves.after(end, func() { n.selves.refresh(n.key()) })
	}
	return before
}

func (o *ownSaid) stop() {
	if o != nil && o.end != nil {
		o.end.Stop()
	}
}

// appendSaid appends what a user says as fields of JSON, null for what it does not say.
func appendSaid(b []byte, said lastseen.Said) []byte {
	b = appendOptional(append(b, `"availability":`...), string(said.Availability))
	b = appendOptional(append(b, `,"note":`...), said.Note)
	return timestamp(said.Until).appendJSON(append(b, `,"until":`...))
}

// appendOptional appends a string as JSON: null for an empty one.
func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendString(b, s)
}

// appendSelf appends the field self of the frame welcome: the user's own presence, with what the user says.
func (n *session) appendSelf(b []byte, v view, said lastseen.Said) []byte {
	self := v.presence(n.user, n.device.State(), nil)
	self.ValidUntil = 0 // the connection lasts longer
	b = self.appendFields(append(b, `,"self":{`...))
	return append(appendSaid(append(b, ','), said), '}')
}

// endAgain ends calls of a user that go on although a client of the user was sent that they are over: the store has
// lost their end, as Redis does that fails over. Otherwise they would go on for as long as both parties are connected,
// and the clients, which show no call, would not end them. Calls has them as they are then, except for those that do
// not exist any longer, which it returns. The error is the last one.
func (s *server) endAgain(
	ctx context.Context, p lastseen.UserKey, calls []lastseen.Call, sessions []*session,
) (gone []string, err error) {
	for i, c := range calls {
		if c.State.Over() || !slices.ContainsFunc(sessions, func(n *session) bool { return n.knowsOver(c.ID) }) {
			continue
		}
		act := store.CallAct{ID: c.ID, User: p.User, Action: lastseen.End}
		step, finish, failure := s.Keeper.Act(ctx, p.Namespace, act)
		finish()
		switch {
		case errors.Is(failure, store.ErrCallNotFound):
			gone = append(gone, c.ID)
		case failure != nil:
			err = failure
		default:
			calls[i] = step.Call
		}
	}
	return gone, err
}

// knowsOver reports whether the client knows that a call is over.
func (n *session) knowsOver(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known != nil && slices.ContainsFunc(n.known.calls, func(c lastseen.Call) bool {
		return c.ID == id && c.State.Over()
	})
}
