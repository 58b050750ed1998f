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
	maxSelfReads   = 8                     // at the same time
	selfTimeout    = 5 * time.Second       // of one
	selfRetry      = time.Second           // after one that failed
	selvesPerRound = 100                   // users that are read again in a round, if signals were lost
	selvesRound    = 50 * time.Millisecond // between two rounds
)

// person is a user of a namespace.
type person struct{ namespace, user string }

// selves reads what users say, for their connections to this server: when it changes, when it ends, and when signals
// may have been lost. A user's connections share one read, and few users are read at the same time.
type selves struct {
	shared *Shared
	after  func(time.Duration, func()) *time.Timer // time.AfterFunc; tests have others

	mu      sync.Mutex
	jobs    map[person]*selfJob
	queue   []person // whose jobs wait
	workers int
	spread  []person // who are added to the queue round by round
	spreads bool     // a round is planned
}

// selfJob is a read that waits or is running.
type selfJob struct {
	renewed bool // the user has said something: see setSelf
	running bool
	again   bool // something has changed since the running one began
}

func newSelves(shared *Shared) *selves {
	return &selves{shared: shared, after: time.AfterFunc, jobs: map[person]*selfJob{}}
}

// refresh has what a user says read again.
func (s *selves) refresh(p person) { s.add(p, false) }

// renew is refresh for a user who has said something.
func (s *selves) renew(p person) { s.add(p, true) }

func (s *selves) add(p person, renewed bool) {
	if len(s.sessionsOf(p)) == 0 {
		return // as on most servers
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.jobs[p]
	switch {
	case job == nil:
		job = &selfJob{}
		s.jobs[p] = job
		s.enqueue(p)
	case job.running:
		job.again = true
	}
	job.renewed = job.renewed || renewed
}

// enqueue adds a job, and a worker unless there are enough. The caller holds the mutex.
func (s *selves) enqueue(p person) {
	s.queue = append(s.queue, p)
	if s.workers < maxSelfReads {
		s.workers++
		go s.work()
	}
}

// work does jobs until none waits.
func (s *selves) work() {
	for {
		p, renewed, ok := s.next()
		if !ok {
			return
		}
		if !s.read(p, renewed) {
			s.retry(p, renewed)
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
func (s *selves) next() (p person, renewed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.workers--
		return p, false, false
	}
	p, s.queue = s.queue[0], s.queue[1:]
	job := s.jobs[p]
	renewed = job.renewed
	job.running, job.renewed = true, false
	return p, renewed, true
}

// retry does a job again that failed, after a while in which the worker does nothing else: the store is probably away.
func (s *selves) retry(p person, renewed bool) {
	time.Sleep(selfRetry)
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.jobs[p]
	job.running, job.again, job.renewed = false, false, job.renewed || renewed
	s.queue = append(s.queue, p)
}

// read reads what a user says, and reports whether that succeeded or is not needed any longer.
func (s *selves) read(p person, renewed bool) bool {
	sessions := s.sessionsOf(p)
	if len(sessions) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), selfTimeout)
	defer cancel()
	server := s.shared.newest.Load()
	now, err := server.Store.Now(ctx)
	if err != nil {
		return false
	}
	said, err := server.Store.ReadAvailability(ctx, p.namespace, p.user, now)
	if err != nil {
		return false
	}
	for _, n := range sessions {
		n.setSelfSafely(said.At(now), now, renewed)
	}
	return true
}

// refreshAll schedules another read of what each connected user says, in one namespace or, for "", in all. A few are
// read at a time. A user who is already waiting is scheduled again.
func (s *selves) refreshAll(namespace string) {
	people := map[person]bool{}
	for _, n := range s.shared.sockets.all() {
		n.mu.Lock()
		if p := (person{n.namespace, n.user}); n.user != "" && (namespace == "" || n.namespace == namespace) {
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
func (s *selves) round() {
	s.mu.Lock()
	n := min(len(s.spread), selvesPerRound)
	people := slices.Clone(s.spread[:n])
	s.spread = s.spread[n:]
	if s.spreads = len(s.spread) > 0; s.spreads {
		time.AfterFunc(selvesRound, s.round)
	} else {
		s.spread = nil
	}
	s.mu.Unlock()
	for _, p := range people {
		s.refresh(p)
	}
}

// sessionsOf returns the sessions of a user, also those that are being opened.
func (s *selves) sessionsOf(p person) (sessions []*session) {
	for _, peer := range s.shared.newest.Load().Connections.Peers(p.namespace, p.user) {
		if n, ok := peer.(*session); ok {
			sessions = append(sessions, n)
		}
	}
	return sessions
}

// setSelfSafely is setSelf in a goroutine that is not the session's: a defect ends this session alone.
func (n *session) setSelfSafely(said lastseen.Said, now lastseen.Instant, renewed bool) {
	defer func() { n.recovered(recover()) }()
	n.setSelf(said, now, renewed)
}
