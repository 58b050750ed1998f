package session

import (
	"strconv"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store/feed"
)

// handleWatch hands a frame watch to what follows, which it begins if there is nothing.
func (n *session) handleWatch(frame clientFrame) error {
	w := watchFrame{id: frame.id}
	if err := frame.decode(&w.changeBody); err != nil {
		return err
	}
	if err := guard.Read.Check(n.namespace, "", n.currentCaller()); err != nil {
		return err
	}
	n.mu.Lock()
	f := n.following
	if f == nil {
		f = newFollowing(n.newest.Load(), n) // under the mutex: permit sees it, or it sees a reload
		n.following = f
	}
	n.mu.Unlock()
	if !f.started {
		f.start()
	}
	select {
	case f.frames <- w:
		f.wake()
	case <-n.ctx.Done():
	case <-f.done:
	}
	return nil
}

// change changes what is watched, as a frame asks, and responds.
func (f *following) change(s *Server, frame watchFrame) error {
	q := watchQuery{feed: isTrue(frame.Everyone) || len(frame.Add) > 0}
	q.Users = frame.Add
	if err := q.check(f.namespace, frame.everyoneBody, frame.Cursor); err != nil {
		return err
	}
	if err := request.CheckUsers(frame.Remove, request.MaxUsers); err != nil {
		return err
	}
	if f.IsOfEveryone() && frame.Everyone == nil && len(frame.Add)+len(frame.Remove) > 0 {
		return problem.New(problem.InvalidParameter,
			`The connection watches everyone. Send {"watch":{"everyone":false}} first.`)
	}
	counted := f.counted
	if isTrue(frame.Counts) {
		if err := f.beginCounts(s); err != nil {
			return err
		}
	}
	batch, err := f.changeUsers(q, frame)
	if err != nil {
		if !counted { // a frame that fails has no effect
			f.endCounts()
		}
		return err
	}
	if frame.Counts != nil && !*frame.Counts {
		f.endCounts()
	}
	if !q.feed {
		f.confirm(frame.id)
		return nil
	}
	f.PlanTick()
	f.sendParts(batchStart(batch), frame.id, batch)
	return nil
}

// changeUsers changes the users that are watched, and returns what is to be shown of those added.
func (f *following) changeUsers(q watchQuery, frame watchFrame) (feed.Batch, error) {
	ends := f.IsOfEveryone() && frame.Everyone != nil && !q.Everyone
	switch {
	case q.Everyone, q.feed && (!f.IsActive() || ends):
		if q.After != nil || q.Everyone { // no user is charged, but it can be a call to the store
			if err := f.charge(1); err != nil {
				return feed.Batch{}, err
			}
		}
		return f.replace(q)
	case ends:
		f.stopWatching()
		return feed.Batch{}, nil
	case !f.IsActive() || len(frame.Add)+len(frame.Remove) == 0:
		return feed.Batch{}, nil
	}
	return f.Change(f.ctx, feed.Change{Add: q.Users, Remove: frame.Remove, After: q.After})
}

// sendFirst sends the end of the frame welcome, which begins with b, and then the rest of the first batch of a query.
func (n *session) sendFirst(b []byte, id string, q watchQuery, first feed.Batch) {
	f := n.following
	defer f.start()
	if first.Reset && q.After != nil { // the cursor is not known
		n.send(withID(appendNobody(b, first.AsOf, subscription.Cursor(n.namespace, q.After), true), id))
		b, id = frameStart(frameReset), ""
	}
	f.sendParts(b, id, first)
	f.Sent(f.ctx, first)
}

// sendBatch sends a batch that came by itself.
func (f *following) sendBatch(batch feed.Batch) bool {
	if !f.sendParts(batchStart(batch), "", batch) {
		return false
	}
	f.Sent(f.ctx, batch)
	return true
}

// batchStart returns the start of the frame of a batch.
func batchStart(batch feed.Batch) []byte {
	if batch.Reset {
		return frameStart(frameReset)
	}
	return frameStart(frameChanges)
}

// frameStart returns the start of a frame.
func frameStart(name string) []byte { return append(append([]byte(`{"`), name...), `":{`...) }

// sendParts sends a batch: a frame that begins with start, and others if it is too large for one. Only the last has the
// cursor of the batch: see [subscription.PartCursor].
func (f *following) sendParts(start []byte, id string, batch feed.Batch) bool {
	cursor, part := "", subscription.PartCursor(f.namespace)
	if len(batch.Positions) > 0 {
		cursor = subscription.Cursor(f.namespace, batch.Positions)
	}
	most := maxSent - max(len(cursor), len(part)) - len(id) - frameRest
	users := batch.Users
	for {
		b := request.Timestamp(batch.AsOf).AppendJSON(append(start, `"as_of":`...))
		b = append(b, `,"users":[`...)
		sent := 0
		for ; sent < len(users); sent++ {
			before := len(b)
			if sent > 0 {
				b = append(b, ',')
			}
			b = f.Show.Presence(b, users[sent].User, users[sent].Published)
			if len(b) > most && sent > 0 {
				b = b[:before]
				break
			}
		}
		users = users[sent:]
		b = append(b, ']')
		if len(users) == 0 {
			b = strconv.AppendBool(append(appendCursor(b, cursor), `,"more":`...), batch.More)
			return f.send(withID(b, id))
		}
		if !f.send(withID(append(appendCursor(b, part), `,"more":true`...), id)) {
			return false
		}
		start = frameStart(frameChanges) // added to the first part, also of a reset
	}
}

// appendNobody appends the fields of a batch without users.
func appendNobody(b []byte, asOf lastseen.Instant, cursor string, more bool) []byte {
	b = request.Timestamp(asOf).AppendJSON(append(b, `"as_of":`...))
	b = appendCursor(append(b, `,"users":[]`...), cursor)
	return strconv.AppendBool(append(b, `,"more":`...), more)
}

// appendCursor appends the field, unless there is no cursor.
func appendCursor(b []byte, cursor string) []byte {
	if cursor == "" {
		return b
	}
	return request.AppendString(append(b, `,"cursor":`...), cursor)
}

// frameRest is room for the end of a frame.
const frameRest = 128
