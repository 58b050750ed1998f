package api

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store/feed"
)

// watchQuery is what a client wants to watch.
type watchQuery struct {
	feed.Query
	cursor string // where it continues; empty if it begins
	feed   bool   // it follows the changes feed
	counts bool   // it gets counts
}

// check checks the users, and reads the other fields.
func (q *watchQuery) check(namespace string, everyone everyoneBody, cursor *string) error {
	if err := q.readEveryone(everyone); err != nil {
		return err
	}
	if err := checkUsers(q.Users, maxLookup); err != nil {
		return err
	}
	if cursor == nil {
		return nil
	}
	if !q.feed {
		return problem.New(problem.InvalidParameter, "cursor needs users to watch, or everyone.")
	}
	var err error
	q.cursor = *cursor
	q.After, err = openChangesCursor(namespace, *cursor)
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

// following is what a session watches. Its goroutine waits for changes and sends them. The reader of the session hands
// it frames, and interrupts its waiting for that.
type following struct {
	*session
	frames chan watchFrame
	latest atomic.Pointer[countsResponse] // counts to be sent; nil for none
	done   chan struct{}                  // closed when the goroutine ends

	waiting waker

	running    bool       // used by the reader alone
	visibility Visibility // of the namespace when the client began to watch

	// The rest is used by one goroutine: until it runs, by the reader.

	watcher  changesWatcher   // nil while no users are watched
	everyone bool             // the watcher watches everyone
	counted  bool             // counts are sent
	opened   lastseen.Instant // by the store's clock; changes recorded later are delivered live
	ledger   ledger
	tickAt   time.Time
}

// watchFrame is a frame watch that was read.
type watchFrame struct {
	changeBody
	id string
}

// firstBatch is what a client gets first of what it watches.
type firstBatch struct {
	feed.Batch
	cursor string // of the query; empty if it began
	feed   bool   // false: there is nothing but counts
}

// newFollowing returns what a session watches: nothing yet.
func newFollowing(s *server, n *session) *following {
	return &following{
		session: n, frames: make(chan watchFrame, 1), done: make(chan struct{}),
		opened: math.MaxInt64, visibility: s.visibility(n.namespace),
		ledger: ledger{shared: n.Shared, namespace: n.namespace, payer: n.payer},
	}
}

// start begins the goroutine.
func (f *following) start() {
	f.running = true
	f.setTick()
	go f.run()
}

// follow begins to watch what hello asks for. The caller starts the goroutine, or ends what begins here.
func (n *session) follow(s *server, q watchQuery) (*firstBatch, error) {
	f := newFollowing(s, n)
	first := &firstBatch{cursor: q.cursor, feed: q.feed}
	if q.feed {
		batch, err := f.replace(s, q)
		if err != nil {
			return nil, err
		}
		first.Batch = batch
	}
	if q.counts {
		if err := f.beginCounts(s); err != nil {
			f.end()
			return nil, err
		}
	}
	n.mu.Lock()
	n.following = f
	n.mu.Unlock()
	return first, nil
}

// replace begins to watch users or everyone, instead of those watched before, and returns the first batch. After an
// error nothing has changed.
//
// Users whose presence it returns count as requests against the caller's rate limit. A client with a cursor continues,
// and they have been counted before, unless the response has all of them: see [watch.charge].
func (f *following) replace(s *server, q watchQuery) (batch feed.Batch, err error) {
	defer f.settle() // gives back what was taken in vain, or for those watched before
	users := len(q.Users)
	if err := s.checkWatchLoad(); err != nil {
		return batch, err
	}
	if q.After == nil {
		if err := f.charge(s, users); err != nil {
			return batch, err
		}
	}
	if err := f.count(max(1, users)); err != nil {
		return batch, err
	}
	f.noteOpened(s)
	s.load.Begin()
	defer s.load.End()
	charge := func() error { return f.charge(s, 1) }
	w, err := s.openWatcher(f.ctx, f.namespace, "", f.currentCaller(), q.Query, charge)
	if err != nil {
		return batch, err
	}
	batch, err = w.Poll(f.ctx, maxEvent)
	if err == nil && batch.Reset {
		err = f.charge(s, users)
	}
	if err != nil {
		w.Close()
		return batch, err
	}
	f.stopWatching()
	f.watcher, f.everyone = w, q.Everyone
	f.Telemetry.Follows(1)
	return batch, nil
}

// noteOpened notes when the client begins to wait, for the delivery lag.
func (f *following) noteOpened(s *server) {
	if f.opened != math.MaxInt64 {
		return
	}
	if now, err := s.Store.Now(f.ctx); err == nil {
		f.opened = now
	}
}

// checkWatchLoad returns an error if the load leaves no room for new watches.
func (s *server) checkWatchLoad() error {
	return s.load.Check(guard.Lookup, "The server is overloaded and refuses new watches to leave room for pings. "+
		"Try again later.")
}

// charge charges users to the caller's rate limit.
func (f *following) charge(s *server, users int) error {
	key, limited := f.payer()
	return s.limiter.ChargeKey(key, limited, users)
}

// count counts n more users to the caller.
func (f *following) count(n int) error { return f.ledger.set(f.ledger.users+n, f.currentCaller()) }

// settle counts as many users to the caller as the watcher has. It gives back, and so it does not fail.
func (f *following) settle() {
	users := 0
	if f.watcher != nil {
		users = max(1, f.watcher.Len())
	}
	_ = f.ledger.set(min(users, f.ledger.users), f.currentCaller())
}

// stopWatching ends the watcher.
func (f *following) stopWatching() {
	if f.watcher == nil {
		return
	}
	f.watcher.Close()
	f.watcher, f.everyone = nil, false
	f.Telemetry.Follows(-1)
}

// end ends the watcher and the counts.
func (f *following) end() {
	f.stopWatching()
	f.settle()
	f.endCounts()
}

// run sends changes until the session ends.
func (f *following) run() {
	defer close(f.done)
	defer f.end()
	defer func() { f.recovered(recover()) }()
	for f.ctx.Err() == nil && f.step() {
	}
}

// step waits for something to do, and does it. It returns false if the session ends.
func (f *following) step() bool {
	turn, endTurn := f.waiting.wait(f.ctx)
	defer endTurn()
	select {
	case frame := <-f.frames:
		return f.handle(frame)
	default:
	}
	if counts := f.latest.Swap(nil); counts != nil && f.counted {
		return f.sendCounts(*counts)
	}
	if f.watcher == nil {
		return f.idle(turn)
	}
	ctx, done := context.WithDeadline(turn, f.tickAt)
	defer done()
	batch, err := f.watcher.Next(ctx, maxEvent)
	switch {
	case err == nil:
		if batch.Page {
			key, limited := f.payer()
			f.server().limiter.Pay(key, limited, pageCost(batch))
		}
		return f.sendBatch(batch)
	case turn.Err() != nil:
		return true
	case ctx.Err() != nil:
		return f.tick()
	default:
		f.fail(err, "")
		return false
	}
}

// idle waits while no users are watched.
func (f *following) idle(turn context.Context) bool {
	wait := time.NewTimer(time.Until(f.tickAt))
	defer wait.Stop()
	select {
	case frame := <-f.frames:
		return f.handle(frame)
	case <-turn.Done():
		return true
	case <-wait.C:
		f.setTick()
		return f.send([]byte(idleTick))
	}
}

// setTick sets the time of the next tick.
func (f *following) setTick() {
	f.tickAt = time.Now().Add(f.newest.Load().jitter(tickInterval*4/5, tickInterval))
}

// tick sends a tick, unless changes are not complete.
func (f *following) tick() bool {
	batch, complete := f.watcher.Tick()
	if !complete {
		f.tickAt = time.Now().Add(tickRetry)
		return true
	}
	f.setTick()
	b := timestamp(batch.AsOf).appendJSON([]byte(`{"tick":{"as_of":`))
	b = appendString(append(b, `,"cursor":`...), changesCursor(f.namespace, batch.Places))
	return f.send(append(b, '}', '}'))
}
