package api

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

// refreshJob is a refresh that waits or is running.
type refreshJob struct {
	reason
	running bool
	again   bool // there was another reason since the running one began
}

// reason says what is read again.
type reason struct {
	availability bool
	renewed      bool     // the user has set it: see setAvailability
	calls        bool     // the call that goes on
	ids          []string // of calls that have changed, at most maxCallsToRefresh
	then         []func() // are called once the first attempt has ended
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
	r.ids = r.ids[max(0, len(r.ids)-maxCallsToRefresh):]
	r.then = append(r.then, more.then...)
}

// callThen calls what follows the first attempt, once.
func (r *reason) callThen() {
	for _, do := range r.then {
		do()
	}
	r.then = nil
}

// refresh has the state of a user read again, if the user has a connection.
func (s *userStates) refresh(key lastseen.UserKey, why reason) {
	if !s.enqueue(key, why) {
		why.callThen()
	}
}

// enqueue adds a job, and a worker unless there are enough. It returns false if nothing is to be read, as on most
// servers.
func (s *userStates) enqueue(key lastseen.UserKey, why reason) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.users[key]
	if st == nil || !st.isShown() {
		return false
	}
	switch {
	case st.job == nil:
		st.job = &refreshJob{}
		s.push(st)
	case st.job.running:
		st.job.again = true
	}
	st.job.add(why)
	return true
}

// push puts a user last in the queue. The caller holds the mutex.
func (s *userStates) push(st *userState) {
	s.queue = append(s.queue, st)
	if s.workers < maxRefreshes {
		s.workers++
		go s.work()
	}
}

// work does jobs until none waits. After one that failed it does nothing for a while: the store is probably away.
func (s *userStates) work() {
	for {
		st, why, ok := s.pop()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), refreshTimeout)
		err := s.read(ctx, st, why)
		cancel()
		why.callThen()
		if err != nil {
			time.Sleep(refreshRetry)
		}
		s.done(st, why, err != nil)
	}
}

// pop returns the next job; false if none waits, and then the worker ends.
func (s *userStates) pop() (st *userState, why reason, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.workers--
		return nil, reason{}, false
	}
	st, s.queue = s.queue[0], s.queue[1:]
	why, st.job.reason = st.job.reason, reason{}
	st.job.running = true
	return st, why, true
}

// done ends a job, or has it done again if it failed or if there was another reason meanwhile.
func (s *userStates) done(st *userState, why reason, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := st.job
	if !failed && !job.again {
		st.job = nil
		return
	}
	if failed {
		job.add(why)
	}
	job.running, job.again = false, false
	s.push(st)
}

// read reads the state of a user. If another read ended meanwhile, it is not clear which of the two is newer: then a
// job of the user does it again.
func (s *userStates) read(ctx context.Context, st *userState, why reason) error {
	began, ok := s.beginRead(st, &why)
	if !ok {
		return nil
	}
	server := s.shared.newest.Load()
	now, err := server.Store.Now(ctx)
	if err != nil {
		return err
	}
	reading := clockReading{now, time.Now()}
	var said lastseen.Said
	if why.availability {
		if said, err = server.Store.ReadAvailability(ctx, st.key.Namespace, st.key.User, now); err != nil {
			return err
		}
	}
	found, deleted, err := s.readCalls(ctx, server, st, why)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = reading
	overtaken := began < st.read
	st.read = st.next()
	if overtaken && st.job != nil && st.job.running {
		st.job.again = true
		st.job.add(why)
	}
	if why.availability && !overtaken {
		s.setAvailability(st, said.At(now), why.renewed)
	}
	if len(found)+len(deleted) > 0 {
		s.setCalls(st, found, deleted, began)
	}
	return err // it is tried again
}

// beginRead returns the number of a read, and adds the call that goes on as far as clients know if calls are read. It
// returns false if the user has no connection any longer.
func (s *userStates) beginRead(st *userState, why *reason) (began uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := st.goingOn(); c != nil && (why.calls || len(why.ids) > 0) {
		why.add(reason{ids: []string{c.ID}})
	}
	return st.next(), st.isShown()
}

// readCalls reads the calls with some IDs, and the one that goes on. It returns those of the user, and the IDs of those
// that do not exist any longer. The keeper hears the user in them.
func (s *userStates) readCalls(
	ctx context.Context, server *server, st *userState, why reason,
) (found []lastseen.Call, deleted []string, err error) {
	var users []string
	if why.calls {
		users = []string{st.key.User}
	}
	if len(why.ids)+len(users) == 0 {
		return nil, nil, nil
	}
	read, err := server.Store.ReadCalls(ctx, st.key.Namespace, why.ids, users)
	switch {
	case errors.Is(err, store.ErrNoCalls):
		return nil, why.ids, nil
	case err != nil:
		return nil, nil, err
	}
	for i, c := range read {
		if !c.State.Over() && s.knowsOver(st, c.ID) {
			var failure error
			c, failure = endAgain(ctx, server, st.key, c)
			err = cmp.Or(failure, err)
		}
		switch {
		case c.Party(st.key.User) != "":
			server.Keeper.Follow(st.key.Namespace, st.key.User, c)
			found = append(found, c)
		case c.ID == "" && i < len(why.ids):
			deleted = append(deleted, why.ids[i])
		}
	}
	return found, deleted, err
}

// knowsOver reports whether clients know that a call is over.
func (s *userStates) knowsOver(st *userState, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := st.call(id)
	return known != nil && known.State.Over()
}

// endAgain ends a call of a user that goes on although clients of the user were sent that it is over: the store has
// lost its end, as Redis does that fails over. Otherwise it would go on for as long as both parties are connected, and
// the clients, which show no call, would not end it. It returns the call as it is then, and no call if there is none.
func endAgain(ctx context.Context, s *server, p lastseen.UserKey, c lastseen.Call) (lastseen.Call, error) {
	step, finish, err := s.Keeper.Act(ctx, p.Namespace, store.CallAct{ID: c.ID, User: p.User, Action: lastseen.End})
	finish()
	switch {
	case errors.Is(err, store.ErrCallNotFound):
		return lastseen.Call{}, nil
	case err != nil:
		return c, err
	}
	return step.Call, nil
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

// refreshSpread refreshes users round by round until none waits for that.
func (s *userStates) refreshSpread() {
	for round := s.nextRound(); len(round) > 0; round = s.nextRound() {
		for _, key := range round {
			s.refresh(key, reason{availability: true, calls: true})
		}
		time.Sleep(betweenRounds)
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
	s.spreads = len(round) > 0
	return round
}
