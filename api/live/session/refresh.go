package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	maxRefreshes      = 8                     // at the same time
	refreshTimeout    = 5 * time.Second       // of one
	refreshRetry      = time.Second           // after one that failed
	refreshesPerRound = 100                   // users whose state is read again in one round, if signals were lost
	betweenRounds     = 50 * time.Millisecond // of these
	maxCallsToRefresh = 16                    // of one user
)

// refreshQueue has the users whose state is to be read again. Each waits once, and few are read at the same time. The
// mutex of userStates guards it.
type refreshQueue struct {
	queue   []*userState
	workers int
	spread  map[lastseen.UserKey]struct{} // who are added to it round by round
	spreads bool                          // a goroutine does that
}

// reason says what is read again.
type reason struct {
	availability bool
	renewed      bool     // the user has set it: see setAvailability
	calls        bool     // the ongoing call
	ids          []string // of calls that have changed, at most maxCallsToRefresh
	then         []func() // are called once the connections were sent what the first attempt read
}

// add adds another reason for the same user.
func (r *reason) add(more reason) {
	r.availability = r.availability || more.availability
	r.renewed = r.renewed || more.renewed
	r.calls = r.calls || more.calls
	for _, id := range more.ids {
		if !slices.Contains(r.ids, id) {
			r.ids = append(r.ids, id)
		}
	}
	if surplus := len(r.ids) - maxCallsToRefresh; surplus > 0 {
		r.ids, r.calls = r.ids[surplus:], true
	}
	r.then = append(r.then, more.then...)
}

// any reports whether there is something to read.
func (r *reason) any() bool { return r.availability || r.ofCalls() }

// ofCalls reports whether calls are to be read.
func (r *reason) ofCalls() bool { return r.calls || len(r.ids) > 0 }

// callThen calls what follows the first attempt, once.
func (r *reason) callThen() {
	then := r.then
	r.then = nil
	for _, do := range then {
		do()
	}
}

// refresh has the state of a user read again, if the user has a connection.
func (s *userStates) refresh(key lastseen.UserKey, why reason) {
	s.mu.Lock()
	if st := s.users[key]; st != nil && st.isShown() {
		s.enqueue(st, &why)
	}
	s.mu.Unlock()
	why.callThen()
}

// enqueue adds a job, and a worker unless there are enough. What follows stays with the reason if too much waits for
// the job already. The caller holds the mutex.
func (s *userStates) enqueue(st *userState, why *reason) {
	if st.job == nil {
		st.job = &reason{}
		s.push(st)
	}
	more := *why
	if len(st.job.then) >= maxCallsToRefresh {
		more.then = nil
	} else {
		why.then = nil
	}
	st.job.add(more)
}

// push puts a user last in the queue. The caller holds the mutex.
func (s *userStates) push(st *userState) {
	s.queue = append(s.queue, st)
	if s.workers < maxRefreshes {
		s.workers++
		go s.work()
	}
}

// work does jobs until none waits.
func (s *userStates) work() {
	for {
		st, why, ok := s.pop()
		if !ok {
			return
		}
		err := s.attempt(st, &why)
		if len(why.then) > 0 {
			then := reason{then: why.then}
			why.then = nil
			s.whenSent(st.key, then.callThen)
		}
		s.done(st, why, err)
	}
}

// attempt reads the state of a user, and ends calls again whose end was lost.
func (s *userStates) attempt(st *userState, why *reason) error {
	defer s.hub.recoverSignal()
	ctx, cancel := context.WithTimeout(context.Background(), refreshTimeout)
	defer cancel()
	r, err := s.read(ctx, st, why)
	for _, c := range r.lost {
		if failed := endAgain(ctx, s.hub.newest.Load(), st.key, c); failed != nil {
			why.calls, err = true, failed
		}
	}
	return err
}

// pop returns the next job; false if none waits, and then the worker ends.
func (s *userStates) pop() (st *userState, why reason, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil
		s.workers--
		return nil, reason{}, false
	}
	st, s.queue[0], s.queue = s.queue[0], nil, s.queue[1:]
	why, *st.job = *st.job, reason{}
	return st, why, true
}

// done ends a job, or has it done again: at once if there was another reason meanwhile, and after a while if it failed,
// for the store is probably away.
func (s *userStates) done(st *userState, why reason, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		st.job.add(why)
		time.AfterFunc(refreshRetry, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.push(st)
		})
	case st.job.any():
		s.push(st)
	default:
		st.job = nil
	}
}

// read reads the state of a user, and clears what of the reason was read.
func (s *userStates) read(ctx context.Context, st *userState, why *reason) (r stateRead, err error) {
	began, ok := s.beginRead(st, why)
	if !ok {
		return r, nil
	}
	server := s.hub.newest.Load()
	now, err := server.Store.Now(ctx)
	if err != nil {
		return r, err
	}
	r = stateRead{began: began, now: clockReading{now, time.Now()}}
	var failed, failedCalls error
	if why.availability {
		r.availability, failed = server.Store.ReadAvailability(ctx, st.key.Namespace, st.key.User, now)
	}
	if why.ofCalls() {
		r.found, r.deleted, failedCalls = s.readCalls(ctx, server, st, why)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = r.now
	if why.availability && failed == nil {
		s.setRead(st, r, why.renewed)
		why.availability, why.renewed = false, false
	}
	if why.ofCalls() && failedCalls == nil {
		s.setCalls(st, &r)
		why.calls, why.ids = false, nil
	}
	return r, cmp.Or(failed, failedCalls)
}

// stateRead is what a read returned.
type stateRead struct {
	began        uint64
	now          clockReading
	availability lastseen.AvailabilityState
	found        []lastseen.Call
	deleted      []string        // IDs
	lost         []lastseen.Call // which go on although clients were sent before that they are over
}

// setRead notes the availability as a read has it. If it became known while the read was in progress, it is not clear
// which of the two is newer, and it is read once more. The caller holds the mutex.
func (s *userStates) setRead(st *userState, r stateRead, renewed bool) {
	if r.began < st.availabilitySince {
		s.enqueue(st, &reason{availability: true, renewed: renewed})
		return
	}
	s.setAvailability(st, r.availability.At(r.now.time), renewed)
}

// beginRead returns the number of a read. If calls are read, it adds the call that clients know as ongoing. It returns
// false if the user has no connection any longer.
func (s *userStates) beginRead(st *userState, why *reason) (began uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := st.ongoing(); c != nil && why.ofCalls() {
		why.add(reason{ids: []string{c.ID}})
	}
	return st.next(), st.isShown()
}

// readCalls reads the calls with some IDs, and the ongoing one. It returns those of the user, and the IDs of those
// that do not exist any longer. The manager keeps the user active in them.
func (s *userStates) readCalls(
	ctx context.Context, server *Server, st *userState, why *reason,
) (found []lastseen.Call, deleted []string, err error) {
	var users []string
	if why.calls {
		users = []string{st.key.User}
	}
	read, err := server.Store.ReadCalls(ctx, st.key.Namespace, why.ids, users)
	switch {
	case errors.Is(err, store.ErrNoCalls):
		return nil, why.ids, nil
	case err != nil:
		return nil, nil, err
	}
	for i, c := range read {
		switch {
		case c.Party(st.key.User) != "":
			server.Calls.Follow(st.key.Namespace, st.key.User, c)
			found = append(found, c)
		case c.ID == "" && i < len(why.ids):
			deleted = append(deleted, why.ids[i])
		}
	}
	return found, deleted, nil
}

// endAgain ends an ongoing call of a user whose clients were sent that it has ended: the store has lost its end, as
// Redis does that fails over. Otherwise it would continue for as long as both parties are connected, and the clients,
// which show no call, would not end it.
func endAgain(ctx context.Context, s *Server, p lastseen.UserKey, c lastseen.Call) error {
	_, finish, err := s.Calls.Act(ctx, p.Namespace, store.CallAct{ID: c.ID, User: p.User, Action: lastseen.End})
	finish()
	if errors.Is(err, store.ErrCallNotFound) {
		return nil
	}
	return err
}

// refreshAll has the state of each connected user read again, in one namespace or, for "", in all. A few are read at a
// time. A user who is already waiting is not added again.
func (s *userStates) refreshAll(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.users {
		if namespace == "" || key.Namespace == namespace {
			s.spread[key] = struct{}{}
		}
	}
	if !s.spreads && len(s.spread) > 0 {
		s.spreads = true
		go s.refreshSpread()
	}
}

// refreshSpread refreshes the users of a round, and those of the next ones later, until none waits for that.
func (s *userStates) refreshSpread() {
	round := s.nextRound()
	for _, key := range round {
		s.refresh(key, reason{availability: true, calls: true})
	}
	if len(round) > 0 {
		time.AfterFunc(betweenRounds, s.refreshSpread)
	}
}

// nextRound returns the users of the next round, in random order; none at the end.
func (s *userStates) nextRound() (round []lastseen.UserKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.spread {
		if len(round) == refreshesPerRound {
			break
		}
		round = append(round, key)
		delete(s.spread, key)
	}
	if s.spreads = len(round) > 0; !s.spreads {
		s.spread = map[lastseen.UserKey]struct{}{} // what it grew to is given back
	}
	return round
}
