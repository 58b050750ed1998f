package calls

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const base = lastseen.Instant(1_700_000_000_000)

// fakeStore keeps calls in memory, by the contract, on the clock of a test. Tests that look into it use it, and those
// with many calls; the others also use the embedded store.
type fakeStore struct {
	store.Store
	monotonic func() time.Duration

	mu         sync.Mutex
	elapsed    time.Duration // when the lock was taken
	namespaces map[string]*fakeCalls
	unlisted   bool // no namespace has calls
}

func newFakeStore(monotonic func() time.Duration) *fakeStore {
	return &fakeStore{monotonic: monotonic, namespaces: map[string]*fakeCalls{}}
}

// lock takes the mutex and reads the clock.
func (s *fakeStore) lock() (unlock func()) {
	now := s.monotonic()
	s.mu.Lock()
	s.elapsed = now
	return s.mu.Unlock
}

// fakeCalls are the calls of a namespace.
type fakeCalls struct {
	clock, last time.Duration
	calls       map[string]*fakeCall
	outbox      map[string]time.Duration
	details     map[string]lastseen.Instant
}

type fakeCall struct {
	lastseen.Call
	unreachable bool
	quiet       time.Duration
	due         map[string]time.Duration // for each party; of both while it rings
}

func (s *fakeStore) now() lastseen.Instant { return base.Add(s.elapsed) }

// in returns the calls of a namespace, with their clock advanced.
func (s *fakeStore) in(namespace string) *fakeCalls {
	n := s.namespaces[namespace]
	if n == nil {
		n = &fakeCalls{
			last: s.elapsed, calls: map[string]*fakeCall{}, outbox: map[string]time.Duration{},
			details: map[string]lastseen.Instant{},
		}
		s.namespaces[namespace] = n
	}
	n.clock += min(s.elapsed-n.last, store.MaxCallGap)
	n.last = s.elapsed
	return n
}

func (c *fakeCall) rest(clock time.Duration) time.Duration {
	return min(c.due[c.From], c.due[c.To]) - clock
}

// of returns the call that goes on of a user who is a party; nil if there is none.
func (n *fakeCalls) of(user string) *fakeCall {
	for _, c := range n.calls {
		isParty := c.From == user || c.To == user && !c.unreachable
		if isParty && !c.State.Over() && c.rest(n.clock) > 0 {
			return c
		}
	}
	return nil
}

// note has the parties of a call copied.
func (s *fakeStore) note(n *fakeCalls, c *fakeCall) []store.InCall {
	for _, user := range []string{c.From, c.To} {
		n.outbox[user] = s.elapsed
	}
	return []store.InCall{s.inCall(n, c.From), s.inCall(n, c.To)}
}

func (s *fakeStore) inCall(n *fakeCalls, user string) store.InCall {
	if c := n.of(user); c != nil && c.State == lastseen.Active {
		return store.InCall{User: user, Until: s.now().Add(c.rest(n.clock))}
	}
	return store.InCall{User: user}
}

// expire ends a call if its time has passed.
func (s *fakeStore) expire(n *fakeCalls, c *fakeCall) (store.CallStep, bool) {
	if c.State.Over() || c.rest(n.clock) > 0 {
		return store.CallStep{}, false
	}
	wasActive := c.State == lastseen.Active
	c.State, c.Over, c.By = c.State.Expired(), s.now().Add(c.rest(n.clock)), ""
	c.Version++
	step := store.CallStep{Call: c.Call, Outcome: lastseen.Stepped, Expired: true, Unreachable: c.unreachable}
	if wasActive {
		step.InCall = s.note(n, c)
	}
	return step, true
}

func (s *fakeStore) start(namespace string, o store.NewCall) (store.CallStep, error) {
	n := s.in(namespace)
	if c := n.calls[o.ID]; c != nil {
		return store.CallStep{Call: s.shown(n, c), Outcome: lastseen.Repeated, Unreachable: c.unreachable}, nil
	}
	if n.of(o.From) != nil {
		return store.CallStep{}, store.ErrCallerBusy
	}
	busy := n.of(o.To) != nil
	if busy && !o.CalleeHidden {
		return store.CallStep{}, store.ErrCalleeBusy
	}
	c := &fakeCall{
		Call: lastseen.Call{
			ID: o.ID, From: o.From, To: o.To, State: lastseen.Ringing, Version: 1, FromDevice: o.FromDevice, App: o.App,
			By: o.From, Created: s.now(),
		},
		unreachable: busy, quiet: o.Quiet,
		due: map[string]time.Duration{o.From: n.clock + o.Ring, o.To: n.clock + o.Ring},
	}
	n.calls[o.ID] = c
	return store.CallStep{Call: s.shown(n, c), Outcome: lastseen.Stepped, Unreachable: busy}, nil
}

func (s *fakeStore) step(namespace string, a store.CallAct) (store.CallStep, error) {
	n := s.in(namespace)
	c := n.calls[a.ID]
	if c == nil || c.Party(a.User) == "" || c.unreachable && a.User == c.To {
		return store.CallStep{}, store.ErrCallNotFound
	}
	step, expired := s.expire(n, c)
	before := c.State
	var outcome lastseen.CallOutcome
	c.State, outcome = c.Step(a.Action, c.Party(a.User), a.Device)
	if outcome == lastseen.Stepped {
		s.stepped(n, c, a)
		if before == lastseen.Active || c.State == lastseen.Active {
			step.InCall = s.note(n, c)
		}
	}
	if outcome != lastseen.Refused && c.State == lastseen.Active {
		c.due[a.User] = n.clock + c.quiet
	}
	step.Call, step.Outcome, step.Expired, step.Unreachable = s.shown(n, c), outcome, expired, c.unreachable
	return step, nil
}

func (s *fakeStore) stepped(n *fakeCalls, c *fakeCall, a store.CallAct) {
	c.Version++
	c.By, c.ByDevice = a.User, a.Device
	if c.State.Over() {
		c.Over = s.now()
		return
	}
	c.ToDevice, c.Accepted = a.Device, s.now()
	c.due[c.From], c.due[c.To] = n.clock+c.quiet, n.clock+c.quiet
}

// shown returns a call as readers see it.
func (s *fakeStore) shown(n *fakeCalls, c *fakeCall) lastseen.Call {
	shown := c.Call
	if rest := c.rest(n.clock); !c.State.Over() && rest > 0 {
		shown.Expires = s.now().Add(rest)
	} else if !c.State.Over() {
		shown.State, shown.Over = c.State.Expired(), s.now().Add(rest)
		shown.Version++
	}
	return shown
}

func (s *fakeStore) hear(namespace string, heard []store.CallHeard) (result store.HeardCalls) {
	n := s.in(namespace)
	result.Calls = make([]store.HeardCall, len(heard))
	for i, h := range heard {
		for _, c := range n.calls {
			device := c.Device(h.User)
			if c.State != lastseen.Active || c.Party(h.User) == "" || device != "" && device != h.Device {
				continue
			}
			if step, expired := s.expire(n, c); expired {
				result.Steps = append(result.Steps, step)
				continue
			}
			c.due[h.User] = n.clock + c.quiet
			result.Calls[i] = store.HeardCall{ID: c.ID, Version: c.Version, Rest: c.rest(n.clock)}
			result.InCall = append(result.InCall, s.note(n, c)...)
		}
	}
	return result
}

func (s *fakeStore) expireAll(namespace string) (result store.ExpiredCalls) {
	n := s.in(namespace)
	result.Next = store.MaxCallGap / 2
	for _, id := range slices.Sorted(maps.Keys(n.calls)) {
		c := n.calls[id]
		if len(result.Steps) == store.MaxCallBatch {
			result.Next = 0
		} else if step, expired := s.expire(n, c); expired {
			result.Steps = append(result.Steps, step)
		}
		if !c.State.Over() {
			result.Calls++
			result.Next = max(0, min(result.Next, c.rest(n.clock)))
		}
	}
	result.Kept = len(n.calls)
	return result
}

// unconfirmed returns what is in the outbox.
func (s *fakeStore) unconfirmed(namespace string, age time.Duration) (in []store.InCall) {
	n := s.in(namespace)
	for _, user := range slices.Sorted(maps.Keys(n.outbox)) {
		if s.elapsed-n.outbox[user] >= age && len(in) < store.MaxCallBatch {
			in = append(in, s.inCall(n, user))
		}
	}
	return in
}

func (s *fakeStore) confirm(namespace string, in []store.InCall) (changed []store.InCall) {
	n := s.in(namespace)
	for _, c := range in {
		present := s.inCall(n, c.User)
		if present == c {
			delete(n.outbox, c.User)
			continue
		}
		n.outbox[c.User] = s.elapsed
		changed = append(changed, present)
	}
	return changed
}
