package api

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

const (
	maxRereads       = 8                     // at the same time
	rereadTimeout    = 5 * time.Second       // of one
	rereadRetry      = time.Second           // after one that failed
	rereadsPerRound  = 100                   // users that are read again in one round, if signals were lost
	betweenRounds    = 50 * time.Millisecond // of these
	maxCallsToReread = 16                    // of one user
)

// rereads reads something of users again, for their connections to this server: when it changes, when it ends, and when
// signals may have been lost. A user's connections share one read, reads of one user follow each other, and few users
// are read at the same time.
type rereads struct {
	shared *Shared
	read   func(ctx context.Context, p lastseen.UserKey, of []*session, why news) error
	after  func(time.Duration, func()) *time.Timer // time.AfterFunc; tests have others

	mu      sync.Mutex
	jobs    map[lastseen.UserKey]*reread
	queue   []lastseen.UserKey // whose jobs wait
	workers int
	spread  []lastseen.UserKey // who are added to the queue round by round
	spreads bool               // a round is planned
}

// reread is a read that waits or is running.
type reread struct {
	news
	running bool
	again   bool // something has changed since the running one began
}

// news is why something is read again.
type news struct {
	all     bool     // signals may have been lost
	renewed bool     // the user has said something: see setSelf
	calls   []string // calls of the user that have changed, at most maxCallsToReread
	then    []func() // are called once the first attempt has ended
}

// add adds news of the same user.
func (n *news) add(more news) {
	n.all = n.all || more.all
	n.renewed = n.renewed || more.renewed
	for _, id := range more.calls {
		if !slices.Contains(n.calls, id) {
			n.calls = append(n.calls, id)
		}
	}
	n.calls = n.calls[max(0, len(n.calls)-maxCallsToReread):]
	n.then = append(n.then, more.then...)
}

// callThen calls what follows the first attempt, once.
func (n *news) callThen() {
	for _, do := range n.then {
		do()
	}
	n.then = nil
}

func newRereads(shared *Shared, read func(context.Context, lastseen.UserKey, []*session, news) error) *rereads {
	return &rereads{shared: shared, read: read, after: time.AfterFunc, jobs: map[lastseen.UserKey]*reread{}}
}

// refresh reads again, perhaps in vain.
func (s *rereads) refresh(p lastseen.UserKey) { s.add(p, news{all: true}) }

// add reads again because of news.
func (s *rereads) add(p lastseen.UserKey, why news) {
	if len(s.shared.sessionsOf(p)) == 0 { // as on most servers
		why.callThen()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.jobs[p]
	switch {
	case job == nil:
		job = &reread{}
		s.jobs[p] = job
		s.enqueue(p)
	case job.running:
		job.again = true
	}
	job.add(why)
}

// enqueue adds a job, and a worker unless there are enough. The caller holds the mutex.
func (s *rereads) enqueue(p lastseen.UserKey) {
	s.queue = append(s.queue, p)
	if s.workers < maxRereads {
		s.workers++
		go s.work()
	}
}

// work does jobs until none waits.
func (s *rereads) work() {
	for {
		p, why, ok := s.next()
		if !ok {
			return
		}
		err := s.readNow(p, why)
		why.callThen()
		if err != nil {
			s.retry(p, why)
			continue
		}
		s.mu.Lock()
		if job := s.jobs[p]; job.again {
			job.running, job.again = false, false
			s.enqueue(p)
		} else {
			delete(s.jobs, p)
		}
		s.mu.Unlock()
	}
}

// next returns the next job; false if none waits, and then the worker ends.
func (s *rereads) next() (p lastseen.UserKey, why news, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.workers--
		return p, news{}, false
	}
	p, s.queue = s.queue[0], s.queue[1:]
	job := s.jobs[p]
	why, job.news = job.news, news{}
	job.running = true
	return p, why, true
}

// retry does a job again that failed, after a while in which the worker does nothing else: the store is probably away.
func (s *rereads) retry(p lastseen.UserKey, why news) {
	time.Sleep(rereadRetry)
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.jobs[p]
	job.running, job.again = false, false
	why.add(job.news)
	job.news = why
	s.queue = append(s.queue, p)
}

// readNow reads what is to be read of a user. If that fails, it has to be done again.
func (s *rereads) readNow(p lastseen.UserKey, why news) error {
	sessions := s.shared.sessionsOf(p)
	if len(sessions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rereadTimeout)
	defer cancel()
	return s.read(ctx, p, sessions, why)
}

// refreshAll schedules another read for each connected user, in one namespace or, for "", in all. A few are read at a
// time. A user who is already waiting is scheduled again.
func (s *rereads) refreshAll(namespace string) {
	people := map[lastseen.UserKey]bool{}
	for _, n := range s.shared.sockets.all() {
		n.mu.Lock()
		if p := n.key(); n.user != "" && (namespace == "" || n.namespace == namespace) {
			people[p] = true
		}
		n.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.spread {
		people[p] = true
	}
	s.spread = s.spread[:0]
	for p := range people {
		s.spread = append(s.spread, p)
	}
	rand.Shuffle(len(s.spread), func(i, k int) { s.spread[i], s.spread[k] = s.spread[k], s.spread[i] })
	if !s.spreads && len(s.spread) > 0 {
		s.spreads = true
		go s.round()
	}
}

// round refreshes the next users, and plans the next round.
func (s *rereads) round() {
	s.mu.Lock()
	n := min(len(s.spread), rereadsPerRound)
	people := slices.Clone(s.spread[:n])
	s.spread = s.spread[n:]
	if s.spreads = len(s.spread) > 0; s.spreads {
		time.AfterFunc(betweenRounds, s.round)
	} else {
		s.spread = nil
	}
	s.mu.Unlock()
	for _, p := range people {
		s.refresh(p)
	}
}

// sessionsOf returns the sessions of a user, also those that are being opened.
func (s *Shared) sessionsOf(p lastseen.UserKey) (sessions []*session) {
	for _, peer := range s.newest.Load().Connections.Peers(p.Namespace, p.User) {
		if n, ok := peer.(*session); ok {
			sessions = append(sessions, n)
		}
	}
	return sessions
}
