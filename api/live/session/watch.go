package session

import (
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store/feed"
)

// watchQuery is what a client wants to watch.
type watchQuery struct {
	subscription.Query
	feed   bool // it follows the changes feed
	counts bool // it gets counts
}

// check checks the users, and reads the other fields.
func (q *watchQuery) check(namespace string, everyone everyoneBody, cursor *string) error {
	if err := q.readEveryone(everyone); err != nil {
		return err
	}
	if err := request.CheckUsers(q.Users, request.MaxUsers); err != nil {
		return err
	}
	if cursor == nil {
		return nil
	}
	if !q.feed {
		return problem.New(problem.InvalidParameter, "cursor needs users to watch, or everyone.")
	}
	var err error
	q.After, err = subscription.OpenCursor(namespace, *cursor)
	return err
}

// readEveryone reads the fields of a client that watches everyone, if it does.
func (q *watchQuery) readEveryone(body everyoneBody) error {
	q.Everyone, q.NoSnapshot = isTrue(body.Everyone), !isTrue(body.Snapshot)
	r := request.Params{Query: request.Query{"status": body.Statuses}}
	q.Statuses = r.Statuses()
	switch {
	case r.Err != nil:
		return r.Err
	case q.Everyone && len(q.Users) > 0:
		return problem.New(problem.InvalidParameter, "Watch users or everyone, not both.")
	case !q.Everyone && isTrue(body.Snapshot), q.NoSnapshot && q.Statuses != nil:
		return problem.New(problem.InvalidParameter, "snapshot needs everyone, and status needs snapshot.")
	}
	return nil
}

// following is what a session watches. While there is something to send, a goroutine does so. The reader of the session
// hands it frames.
type following struct {
	*session
	frames chan watchFrame
	latest atomic.Pointer[counted] // counts to be sent; nil for none
	done   chan struct{}           // closed at the end
	state  atomic.Int32            // see wake

	started    bool // used by the reader alone
	restricted bool // whether users were visible to contacts alone when the client began to watch

	// The rest is used by one goroutine at a time: until the start, by the reader.

	*subscription.Subscription
	counted bool        // counts are sent
	timer   *time.Timer // to wake
}

// The states of what a session watches.
const (
	working int32 = iota // a goroutine looks for what is to be done, or it has not started, or has ended
	woken                // it is to look once more
	resting              // there is no goroutine
)

// watchFrame is a frame watch that was read.
type watchFrame struct {
	changeBody
	id string
}

// newFollowing returns what a session watches: nothing yet.
func newFollowing(s *Server, n *session) *following {
	f := &following{
		session: n, frames: make(chan watchFrame, 1), done: make(chan struct{}),
		restricted: s.Restricted(n.namespace),
	}
	f.Subscription = subscription.New(subscription.Options{
		Ledger: subscription.Ledger{Shared: n.Subscriptions, Namespace: n.namespace, Payer: n.payer},
		Server: func() *subscription.Server { return n.newest.Load().Server }, Caller: n.currentCaller, Wake: f.wake,
	})
	return f
}

// start begins to send changes.
func (f *following) start() {
	f.started = true
	f.PlanTick()
	go f.work()
}

// wake has a goroutine look for what is to be done.
func (f *following) wake() {
	if f.state.Swap(woken) == resting {
		go f.work()
	}
}

// follow begins to watch what hello asks for, and returns the first batch. The caller starts or ends what begins here.
func (n *session) follow(s *Server, q watchQuery) (first feed.Batch, err error) {
	f := newFollowing(s, n)
	if q.feed {
		if first, err = f.replace(q); err != nil {
			return first, err
		}
	}
	if q.counts {
		if err := f.beginCounts(s); err != nil {
			f.end()
			return first, err
		}
	}
	n.mu.Lock()
	n.following = f
	n.mu.Unlock()
	return first, nil
}

// replace begins to watch users or everyone, instead of those watched before, and returns the first batch. After an
// error nothing has changed.
func (f *following) replace(q watchQuery) (feed.Batch, error) {
	watched := f.IsActive()
	batch, err := f.Replace(f.ctx, q.Query, maxBatch)
	if err == nil && !watched {
		f.Telemetry.Follows(1)
	}
	return batch, err
}

// stopWatching watches no users any longer.
func (f *following) stopWatching() {
	if f.IsActive() {
		f.Telemetry.Follows(-1)
	}
	f.Close()
}

// end ends the watcher and the counts.
func (f *following) end() {
	f.stopWatching()
	f.endCounts()
}

// work does what is to be done. Its goroutine ends when there is nothing for a while.
func (f *following) work() {
	ended := true // also by a panic
	defer func() {
		f.recovered(recover())
		if ended {
			stop(f.timer)
			f.end()
			close(f.done)
		}
	}()
	for f.ctx.Err() == nil {
		f.state.Store(working)
		again, ok := f.step()
		if !ok {
			return
		}
		if again > 0 && f.rest(again) {
			ended = false
			return
		}
	}
}

// rest has the timer wake, unless there is something to be done now.
func (f *following) rest(d time.Duration) bool {
	if f.timer == nil {
		f.timer = time.AfterFunc(d, f.wake)
	} else {
		f.timer.Reset(d)
	}
	return f.state.CompareAndSwap(working, resting)
}

// step does one thing, if there is one. It returns after which time to look again, and false if the session ends.
func (f *following) step() (again time.Duration, ok bool) {
	select {
	case frame := <-f.frames:
		if err := f.change(f.newest.Load(), frame); err != nil {
			f.refuse(err, frame.id)
		}
		return 0, true
	default:
	}
	if counts := f.latest.Swap(nil); counts != nil && f.counted {
		return 0, f.sendCounts(*counts)
	}
	batch, next, again, err := f.Next(f.ctx, maxBatch)
	switch {
	case f.ctx.Err() != nil:
		return 0, false
	case err != nil:
		f.fail(err, "")
		return 0, false
	case next == subscription.Changes:
		return 0, f.sendBatch(batch)
	case next == subscription.Tick && f.IsActive():
		return 0, f.sendTick(batch)
	case next == subscription.Tick:
		return 0, f.send([]byte(idleTick))
	}
	return again, true
}

// sendTick sends a tick.
func (f *following) sendTick(batch feed.Batch) bool {
	b := request.Timestamp(batch.AsOf).AppendJSON([]byte(`{"tick":{"as_of":`))
	b = request.AppendString(append(b, `,"cursor":`...), subscription.Cursor(f.namespace, batch.Positions))
	return f.send(append(b, '}', '}'))
}
