//go:build faults

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

// keepAcks is how long a ledger keeps each acknowledged state of a user; of those before it keeps the newest.
const keepAcks = time.Minute

// maxViolations is how many violations a ledger describes.
const maxViolations = 20

// clockTolerance is how far the time of a response may be off. All programs run on one machine.
const clockTolerance = 3 * time.Second

// latestArrival is how long after a client sent a request, and perhaps gave up, a server may still process it, for
// example one that was suspended meanwhile.
const latestArrival = 2 * time.Minute

// ledger knows every acknowledged write. Its rules:
//
//   - A lookup that began after an acknowledgement returns that state or a greater one, or an error.
//   - A status follows from the state, the time and the thresholds in the response. So an online user is never grey.
//   - The time in the response is that of the machine.
//   - A user is known only if a ping or a leave was sent, and was not seen after the last one.
//   - Acknowledgements that a crash can lose by the contract (see [ledger.suspect]) do not count.
type ledger struct {
	mu         sync.Mutex
	users      map[string][]ack    // in the order in which they were received
	attempts   map[string]attempts // of each user
	crashes    []*crash
	violations []violation
	describe   func() string // what goes on, for violations; optional

	acks, checks int // how many there were
}

// violation describes a response that broke a rule. lost is the acknowledgement that it disregards, if any.
type violation struct {
	text string
	lost *ack
}

// ack is an acknowledged state of a user.
type ack struct {
	state          lastseen.State
	sent, received time.Time // the request and its response, by the client's clock
}

// crash is a time whose acknowledgements may be lost. Its end is zero while it lasts.
type crash struct{ from, to time.Time }

// hits reports whether the crash can have lost what was acknowledged.
func (c crash) hits(a ack) bool {
	return a.received.After(c.from) && (c.to.IsZero() || !a.sent.After(c.to))
}

func newLedger() *ledger {
	return &ledger{users: map[string][]ack{}, attempts: map[string]attempts{}}
}

// acknowledge notes a state that a response returned.
func (l *ledger) acknowledge(user string, a ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks++
	acks := slices.DeleteFunc(append(l.users[user], a), func(old ack) bool {
		return a.received.Sub(old.received) > keepAcks && l.forgiven(old)
	})
	for len(acks) > 1 && l.counts(acks[1]) && a.received.Sub(acks[1].received) > keepAcks &&
		acks[1].state.Compare(acks[0].state) >= 0 {
		acks = acks[1:]
	}
	l.users[user] = acks
}

// forgiven reports whether a crash that is over can have lost the state.
func (l *ledger) forgiven(a ack) bool {
	return slices.ContainsFunc(l.crashes, func(c *crash) bool { return !c.to.IsZero() && c.hits(a) })
}

// counts reports whether no crash can have lost the state.
func (l *ledger) counts(a ack) bool {
	return !slices.ContainsFunc(l.crashes, func(c *crash) bool { return c.hits(a) })
}

// required returns the greatest state that was acknowledged before a time and cannot be lost.
func (l *ledger) required(user string, before time.Time) (greatest ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks++
	for _, a := range l.users[user] {
		if a.received.Before(before) && l.counts(a) && a.state.Compare(greatest.state) > 0 {
			greatest = a
		}
	}
	return greatest
}

// suspect begins a crash: what was acknowledged since a time does not count. The returned function ends the crash at
// another time, or withdraws it if that is zero.
func (l *ledger) suspect(from time.Time) (end func(to time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	this := &crash{from: from}
	l.crashes = append(l.crashes, this)
	return func(to time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		this.to = to
		if to.IsZero() {
			l.crashes = slices.DeleteFunc(l.crashes, func(c *crash) bool { return c == this })
		}
	}
}

// check compares what a lookup that began at a time returned with what it may return.
func (l *ledger) check(found presence, view evaluated, began time.Time) {
	at, err := found.state()
	if err != nil {
		l.violate("%s: %v", found.User, err)
		return
	}
	if required := l.required(found.User, began); at.Compare(required.state) < 0 {
		l.note(violation{fmt.Sprintf("%s: %s %+v is older than %+v, which was acknowledged at %s", found.User, found.Status,
			at, required.state, required.received.Format(time.StampMilli)), &required})
	}
	l.checkAttempted(found, at)
	asOf, err := lastseen.ParseTime(view.AsOf)
	if err != nil {
		l.violate("as_of: %v", err)
		return
	}
	if now := time.Now(); asOf < lastseen.InstantOf(began.Add(-clockTolerance)) ||
		asOf > lastseen.InstantOf(now.Add(clockTolerance)) {
		l.violate("%s: as_of is %s between %s and %s", found.User, view.AsOf, began, now)
	}
	thresholds := lastseen.Thresholds{
		Green: time.Duration(view.GreenMs) * time.Millisecond, Yellow: time.Duration(view.YellowMs) * time.Millisecond,
	}
	if right := thresholds.Presence(found.User, at, asOf).Status; found.Status != right {
		l.violate("%s: %s instead of %s at %s for %+v", found.User, found.Status, right, view.AsOf, at)
	}
}

// checkAttempted checks that a known user pinged or left, not before that time.
func (l *ledger) checkAttempted(found presence, at lastseen.State) {
	l.mu.Lock()
	last := l.attempts[found.User].last
	l.mu.Unlock()
	if at.Known() && (last.IsZero() || at.At > lastseen.InstantOf(last.Add(latestArrival))) {
		l.violate("%s: %s %+v, but the last ping or leave was sent at %s", found.User, found.Status, at, last)
	}
}

// acknowledgeBody notes the state in the response to a ping or a leave, or that it is not one.
func (l *ledger) acknowledgeBody(user string, body []byte, sent time.Time) {
	var found presence
	err := json.Unmarshal(body, &found)
	state, stateErr := found.state()
	if err = errors.Join(err, stateErr); err != nil || found.User != user || !state.Known() {
		l.violate("%s: acknowledged with %q: %v", user, body, err)
		return
	}
	l.acknowledge(user, ack{state, sent, time.Now()})
}

// checkBody checks the response to a lookup of one user that began at a time.
func (l *ledger) checkBody(user string, body []byte, began time.Time) {
	var found struct {
		presence
		evaluated
	}
	if err := json.Unmarshal(body, &found); err != nil || found.User != user {
		l.violate("%s: looked up with %q: %v", user, body, err)
		return
	}
	l.check(found.presence, found.evaluated, began)
}

// violate notes that a response broke a rule.
func (l *ledger) violate(format string, args ...any) {
	l.note(violation{text: fmt.Sprintf(format, args...)})
}

func (l *ledger) note(v violation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violations = slices.DeleteFunc(l.violations, func(old violation) bool {
		return old.lost != nil && l.forgiven(*old.lost)
	})
	if len(l.violations) >= maxViolations {
		return
	}
	if l.describe != nil {
		v.text = l.describe() + ": " + v.text
	}
	l.violations = append(l.violations, v)
}

// broken returns the violations. A lookup that disregards what a crash can have lost is not one, also when the crash
// became known later.
func (l *ledger) broken() (texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.violations {
		if v.lost == nil || l.counts(*v.lost) {
			texts = append(texts, v.text)
		}
	}
	return texts
}

// names returns the users with an acknowledged write, in order.
func (l *ledger) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.users))
}

// countBefore returns how many users have an acknowledged write that was received before a time.
func (l *ledger) countBefore(then time.Time) (users int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, acks := range l.users {
		if acks[0].received.Before(then) {
			users++
		}
	}
	return users
}

// presence is a user in a response.
type presence struct {
	User     string          `json:"user"`
	Status   lastseen.Status `json:"status"`
	LastSeen *string         `json:"last_seen"`
	Left     bool            `json:"left"`
}

// evaluated is how a response evaluated statuses.
type evaluated struct {
	AsOf     string `json:"as_of"`
	GreenMs  int64  `json:"green_ms"`
	YellowMs int64  `json:"yellow_ms"`
}

func (p presence) state() (lastseen.State, error) {
	if p.LastSeen == nil {
		return lastseen.State{}, nil
	}
	at, err := lastseen.ParseTime(*p.LastSeen)
	return lastseen.State{At: at, Left: p.Left}, err
}

// attempts are the pings and leaves of a user that were sent.
type attempts struct {
	last    time.Time // when the last one was sent, successful or not
	open    int       // how many have no outcome yet
	doubted time.Time // when the last one was sent that was not acknowledged
}

// attempt notes that a ping or a leave is sent. The returned function notes its outcome.
func (l *ledger) attempt(user string) (end func(acknowledged bool)) {
	sent := time.Now()
	l.change(user, func(a *attempts) {
		a.last = sent
		a.open++
	})
	return func(acknowledged bool) {
		l.change(user, func(a *attempts) {
			a.open--
			if !acknowledged && sent.After(a.doubted) {
				a.doubted = sent
			}
		})
	}
}

func (l *ledger) change(user string, how func(*attempts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.attempts[user]
	how(&a)
	l.attempts[user] = a
}

// settled returns the state that a user has now and had at a time. It is not ok if that is not certain: something was
// acknowledged since, has no outcome, failed but can have been recorded, or was lost by a crash.
func (l *ledger) settled(user string, at time.Time) (state ack, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost ack
	for _, a := range l.users[user] {
		switch {
		case !a.received.Before(at):
			return ack{}, false
		case l.counts(a) && a.state.Compare(state.state) > 0:
			state = a
		case !l.counts(a) && a.state.Compare(lost.state) > 0:
			lost = a
		}
	}
	sent := l.attempts[user]
	doubtful := !sent.doubted.IsZero() && sent.doubted.Add(latestArrival).After(state.sent)
	return state, sent.open == 0 && !doubtful && lost.state.Compare(state.state) <= 0 && state.state.Known()
}
