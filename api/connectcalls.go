package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	// maxKnownCalls is the number of calls that a session remembers: the one that goes on, and some that are over.
	maxKnownCalls = 4
	// lateCall is how long after the end of its time a call is read again that goes on as far as a client knows. The
	// server that ends calls has then sent a signal, unless that was lost.
	lateCall = time.Second
)

// ownCalls are the calls of the user of a session that its client knows, the newest last.
type ownCalls struct {
	calls []lastseen.Call
	late  *time.Timer // reads them again; nil if none goes on
}

func (o *ownCalls) stop() {
	if o != nil && o.late != nil {
		o.late.Stop()
	}
}

// goingOn returns the newest call that goes on; nil if none does.
func (o *ownCalls) goingOn() *lastseen.Call {
	if o != nil {
		for i := range slices.Backward(o.calls) {
			if !o.calls[i].State.Over() {
				return &o.calls[i]
			}
		}
	}
	return nil
}

// readCalls returns the call of a user that goes on, if there is one, and has the user heard in it.
func (s *server) readCalls(ctx context.Context, p lastseen.UserKey) ([]lastseen.Call, error) {
	calls, err := s.Store.ReadCalls(ctx, p.Namespace, nil, []string{p.User})
	switch {
	case errors.Is(err, store.ErrNoCalls):
		return nil, nil
	case err != nil:
		return nil, err
	case calls[0].ID == "":
		return nil, nil
	}
	s.Keeper.Follow(p.Namespace, p.User, calls[0])
	return calls, nil
}

// rereadCalls reads the calls of a user again, for the user's sessions: those that have changed, those that go on as
// far as clients know and, if signals may have been lost, the one that goes on.
func (s *Shared) rereadCalls(ctx context.Context, p lastseen.UserKey, sessions []*session, why news) error {
	server := s.newest.Load()
	now, err := server.Store.Now(ctx)
	if err != nil {
		return err
	}
	var found []lastseen.Call
	if why.all || len(why.calls) == 0 {
		if found, err = server.readCalls(ctx, p); err != nil {
			return err
		}
	}
	why.add(news{calls: ongoing(sessions)})
	var deleted []string
	for _, id := range why.calls {
		c, err := store.ReadCall(ctx, server.Store, p.Namespace, id)
		switch {
		case errors.Is(err, store.ErrCallNotFound), errors.Is(err, store.ErrNoCalls):
			deleted = append(deleted, id)
		case err != nil:
			return err
		case c.Party(p.User) != "":
			server.Keeper.Follow(p.Namespace, p.User, c)
			found = append(found, c)
		}
	}
	gone, err := server.endAgain(ctx, p, found, sessions)
	found = slices.DeleteFunc(found, func(c lastseen.Call) bool { return slices.Contains(gone, c.ID) })
	inOrder(found)
	for _, n := range sessions {
		n.setCallsSafely(found, append(deleted, gone...), now)
	}
	return err // it is tried again
}

// inOrder sorts calls so that those that are over come before one that goes on.
func inOrder(calls []lastseen.Call) {
	slices.SortStableFunc(calls, func(a, b lastseen.Call) int {
		switch {
		case a.State.Over() == b.State.Over():
			return 0
		case a.State.Over():
			return -1
		}
		return 1
	})
}

// ongoing returns the IDs of the calls that go on as far as clients know; perhaps some more than once.
func ongoing(sessions []*session) (ids []string) {
	for _, n := range sessions {
		n.mu.Lock()
		if c := n.known.goingOn(); c != nil {
			ids = append(ids, c.ID)
		}
		n.mu.Unlock()
	}
	return ids
}

// setCallsSafely is setCalls in a goroutine that is not the session's: a defect ends this session alone.
func (n *session) setCallsSafely(found []lastseen.Call, deleted []string, now lastseen.Instant) {
	defer func() { n.recovered(recover()) }()
	n.setCalls(found, deleted, now)
}

// setCalls sends the client those of its user's calls that have changed.
func (n *session) setCalls(found []lastseen.Call, deleted []string, now lastseen.Instant) {
	n.mu.Lock()
	if !n.welcomed {
		n.callsMissed = true
		n.mu.Unlock()
		return
	}
	changed := n.noteCalls(append(n.known.ended(deleted, now), found...), now)
	n.mu.Unlock()
	if !n.isShownCalls() {
		return
	}
	for _, c := range changed {
		n.post(posted{call: callFrame{c.ID, append(appendCall([]byte(`{"call":`), c), '}')}})
	}
}

// ended returns the call that goes on as far as the client knows as ended now, if it was deleted. This happens if a
// party is deleted.
func (o *ownCalls) ended(deleted []string, now lastseen.Instant) []lastseen.Call {
	known := o.goingOn()
	if known == nil || !slices.Contains(deleted, known.ID) {
		return nil
	}
	c := *known
	c.State, c.By, c.ByDevice, c.App = lastseen.Ended, "", "", ""
	c.Over, c.Expires, c.Version = now, 0, c.Version+1
	return []lastseen.Call{c}
}

// noteCalls notes calls, and returns those that are news to the client. The caller holds the mutex.
func (n *session) noteCalls(calls []lastseen.Call, now lastseen.Instant) (changed []lastseen.Call) {
	if len(calls) == 0 {
		return nil
	}
	if n.known == nil {
		n.known = &ownCalls{}
	}
	for _, c := range calls {
		if n.known.note(c) {
			changed = append(changed, c)
		}
	}
	left := lastseen.Instant(0)
	if c := n.known.goingOn(); c != nil {
		left = max(0, c.Expires-now)
	}
	n.planLate(time.Duration(left) * time.Millisecond)
	return changed
}

// planLate has the call that goes on read again when its time has passed, which is after left. The caller holds the
// mutex.
func (n *session) planLate(left time.Duration) {
	n.known.stop()
	n.known.late = nil
	if c := n.known.goingOn(); c != nil && n.ctx.Err() == nil {
		id := c.ID
		n.known.late = n.calls.after(min(left, maxSelfEnd)+lateCall, func() { n.checkLate(id) })
	}
}

// checkLate reads a call again whose time has passed as far as the client knows, unless the keeper has heard both
// parties since: reading each call a minute would cost more than hearing its parties.
func (n *session) checkLate(id string) {
	p := n.key()
	left := n.calls.shared.newest.Load().Keeper.Rest(p.Namespace, p.User, id)
	if left == 0 {
		n.calls.refresh(p)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.known.goingOn(); c != nil && c.ID == id {
		n.planLate(left)
	}
}

// note notes a call and reports whether the client sees a difference.
func (o *ownCalls) note(c lastseen.Call) bool {
	i := slices.IndexFunc(o.calls, func(known lastseen.Call) bool { return known.ID == c.ID })
	if i < 0 {
		if len(o.calls) == maxKnownCalls {
			over := func(c lastseen.Call) bool { return c.State.Over() }
			oldest := max(0, slices.IndexFunc(o.calls, over))
			o.calls = slices.Delete(o.calls, oldest, oldest+1)
		}
		o.calls = append(o.calls, c)
		return true
	}
	known := o.calls[i]
	if !c.Replaces(known) {
		return false
	}
	o.calls[i] = c
	known.Version, known.Expires = c.Version, c.Expires // which moves while the parties are heard
	return known != c
}

// appendCalls appends the calls of a user as a list.
func appendCalls(b []byte, calls []lastseen.Call) []byte {
	b = append(b, '[')
	for i, c := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCall(b, c)
	}
	return append(b, ']')
}
