package memstore

import (
	"cmp"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// callTable holds the calls of one namespace.
type callTable struct {
	clock      callClock
	records    map[string]*callRecord     // by ID
	current    map[string]*callRecord     // by user: the ongoing call, or the one whose time has passed
	callerOnly map[string]*callRecord     // by callee: the call that rings for its caller alone, or did so until then
	keys       map[callerKey]*callRecord  // by idempotency key
	started    map[string]int             // by user: the number of calls that the user started and that are kept
	parties    *btree.BTreeG[partyRecord] // of all records, for Forget
	ongoing    *btree.BTreeG[*callRecord] // by when they expire
	over       *btree.BTreeG[*callRecord] // by when they are forgotten
	changed    []string                   // users whose being in a call, or its end, has changed in this step
}

type callerKey struct{ caller, key string }

type partyRecord struct {
	user string
	*callRecord
}

// callRecord is a call that is kept.
type callRecord struct {
	lastseen.Call
	callTerms
	due    time.Duration    // when it expires or, once it has ended, is forgotten: by the clock of the table
	active [2]time.Duration // when the caller and the callee of an active call were active, by that clock

	shownUntil lastseen.Instant // until when the parties of an active call are shown to be in it
}

// callTerms are what does not change in a call.
type callTerms struct {
	timeout     time.Duration
	shown       bool
	callerOnly  bool // the callee is not a party
	key, digest string
}

// callClock runs while it is watched: see [store.Calls].
type callClock struct {
	now  time.Duration
	last time.Duration // by the monotonic clock of the store
}

// clockReading is a time by both clocks.
type clockReading struct {
	at     time.Duration    // by the clock of the table
	wall   lastseen.Instant // by that of the store
	ticked time.Duration    // by the monotonic clock
}

func (c callClock) read(monotonic time.Duration) time.Duration {
	return c.now + min(max(0, monotonic-c.last), store.MaxCallGap)
}

func newCallTable(monotonic time.Duration) *callTable {
	options := btree.Options{NoLocks: true}
	return &callTable{
		clock:   callClock{last: monotonic},
		records: map[string]*callRecord{}, current: map[string]*callRecord{}, keys: map[callerKey]*callRecord{},
		callerOnly: map[string]*callRecord{}, started: map[string]int{},
		parties: btree.NewBTreeGOptions(func(a, b partyRecord) bool {
			return a.user < b.user || a.user == b.user && a.ID < b.ID
		}, options),
		ongoing: btree.NewBTreeGOptions(dueBefore, options),
		over:    btree.NewBTreeGOptions(dueBefore, options),
	}
}

func dueBefore(a, b *callRecord) bool { return a.due < b.due || a.due == b.due && a.ID < b.ID }

// expires returns when an ongoing call expires. It computes the time again if the clock of the store was set meanwhile.
func (r *callRecord) expires(m clockReading) lastseen.Instant {
	const most = 1000 // milliseconds that clocks drift apart, without being set
	due := m.wall.Add(r.due - m.at)
	if -most <= due-r.Expires && due-r.Expires <= most {
		return r.Expires
	}
	return due
}

// view returns a call as it is shown: as over if its time has passed.
func (r *callRecord) view(m clockReading) lastseen.Call {
	c := r.Call
	if c.State.Over() {
		return c
	}
	c.Expires = r.expires(m)
	if r.due > m.at {
		return c
	}
	c.State, c.Version, c.By, c.ByDevice = c.State.Expired(), c.Version+1, "", ""
	c.Over, c.Expires, c.App = min(c.Expires, m.wall), 0, ""
	return c
}

// passed reports whether the time of an ongoing call has passed.
func (r *callRecord) passed(m clockReading) bool { return !r.State.Over() && r.due <= m.at }

// currentOf returns the call of a user that goes on; nil for none.
func (t *callTable) currentOf(user string, m clockReading) *callRecord {
	if r := t.current[user]; r != nil && !r.passed(m) {
		return r
	}
	return nil
}

// start begins a call, unless a call with its key was started before. Ensure is called just before.
func (t *callTable) start(c store.NewCall, m clockReading, ensure func() error) (store.CallStep, error) {
	if r := t.keys[callerKey{c.From, c.Key}]; r != nil {
		if r.digest != c.Digest {
			return store.CallStep{}, store.ErrCallKeyReused
		}
		return store.CallStep{Call: r.view(m), Outcome: lastseen.Repeated, CallerOnly: r.callerOnly}, nil
	}
	refused, callerOnly := t.calleeBusy(c, m)
	switch {
	case c.CalleeUnavailable:
		return store.CallStep{}, store.ErrCalleeUnavailable
	case t.currentOf(c.From, m) != nil:
		return store.CallStep{}, store.ErrCallerBusy
	case refused:
		return store.CallStep{}, store.ErrCalleeBusy
	case t.started[c.From] >= store.MaxCallsOfUser, len(t.records) >= store.MaxCalls:
		return store.CallStep{}, store.ErrTooManyCalls
	}
	if err := ensure(); err != nil {
		return store.CallStep{}, err
	}
	r := newCallRecord(c, m)
	r.callerOnly = callerOnly
	t.add(r)
	return store.CallStep{Call: r.Call, Outcome: lastseen.Stepped, CallerOnly: callerOnly}, nil
}

// calleeBusy reports whether a call cannot begin because the callee is busy, and otherwise whether it can, but the
// callee cannot be a party of it.
func (t *callTable) calleeBusy(c store.NewCall, m clockReading) (refused, callerOnly bool) {
	going, hidden := t.currentOf(c.To, m), t.callerOnly[c.To]
	switch {
	case hidden != nil && !hidden.passed(m):
		return true, false
	case going == nil:
		return false, false
	}
	rings := going.State == lastseen.Ringing && going.To == c.To
	return rings || !c.CalleeHidden, c.CalleeHidden
}

// newCallRecord returns a call that rings.
func newCallRecord(c store.NewCall, m clockReading) *callRecord {
	return &callRecord{
		Call: lastseen.Call{
			ID: c.ID, From: c.From, To: c.To, State: lastseen.Ringing, Version: 1,
			FromDevice: c.FromDevice, By: c.From, ByDevice: c.FromDevice,
			Created: m.wall, Expires: m.wall.Add(c.Ring), App: c.App,
		},
		callTerms: callTerms{timeout: c.Timeout, shown: c.Shown, key: c.Key, digest: c.Digest},
		due:       m.at + c.Ring,
	}
}

func (t *callTable) add(r *callRecord) {
	t.records[r.ID] = r
	t.current[r.From] = r
	if r.callerOnly {
		t.callerOnly[r.To] = r
	} else {
		t.current[r.To] = r
	}
	if r.key != "" {
		t.keys[callerKey{r.From, r.key}] = r
	}
	t.started[r.From]++
	t.parties.Set(partyRecord{r.From, r})
	t.parties.Set(partyRecord{r.To, r})
	t.ongoing.Set(r)
}

// remove deletes a record.
func (t *callTable) remove(r *callRecord) {
	delete(t.records, r.ID)
	t.free(r)
	if r.key != "" {
		delete(t.keys, callerKey{r.From, r.key})
	}
	if t.started[r.From]--; t.started[r.From] == 0 {
		delete(t.started, r.From)
	}
	t.parties.Delete(partyRecord{r.From, r})
	t.parties.Delete(partyRecord{r.To, r})
	t.ongoing.Delete(r)
	t.over.Delete(r)
}

// free makes the parties of a call free for others.
func (t *callTable) free(r *callRecord) {
	for _, user := range []string{r.From, r.To} {
		if t.current[user] == r {
			delete(t.current, user)
		}
	}
	if t.callerOnly[r.To] == r {
		delete(t.callerOnly, r.To)
	}
}

// step does what a party wants.
func (t *callTable) step(a store.CallAct, m clockReading) (store.CallStep, error) {
	r := t.records[a.ID]
	if r == nil || r.Party(a.User) == "" || r.callerOnly && a.User == r.To {
		return store.CallStep{}, store.ErrCallNotFound
	}
	step := store.CallStep{CallerOnly: r.callerOnly}
	if r.passed(m) {
		step = t.expire(r, m)
	}
	was, app := r.State, r.App
	state, outcome := r.Step(a.Action, r.Party(a.User), a.Device)
	if outcome != lastseen.Refused && a.App != "" && !state.Over() &&
		(a.Action == lastseen.Accept || a.Action == lastseen.Alive) {
		r.App = strings.Clone(a.App)
	}
	if outcome == lastseen.Stepped {
		r.State, r.By, r.ByDevice = state, strings.Clone(a.User), strings.Clone(a.Device)
		if state == lastseen.Active || state == lastseen.Rejected {
			r.ToDevice = r.ByDevice
		}
		t.stepped(r, was, m)
	} else if outcome == lastseen.Repeated && state == lastseen.Active {
		t.keepAlive(r, r.Party(a.User), m)
	}
	if outcome == lastseen.Stepped || r.App != app {
		r.Version++
	}
	step.Call, step.Outcome = r.view(m), outcome
	return step, nil
}

// stepped completes the change of a call from one state to another.
func (t *callTable) stepped(r *callRecord, was lastseen.CallState, m clockReading) {
	if r.State == lastseen.Active {
		r.Accepted, r.active = m.wall, [2]time.Duration{m.at, m.at}
		t.setDue(r, m.at+r.timeout, m)
		t.show(r)
		return
	}
	t.end(r, m.wall, m)
	if was == lastseen.Active {
		t.note(r)
	}
}

// end completes a call that ended at some time.
func (t *callTable) end(r *callRecord, since lastseen.Instant, m clockReading) {
	t.free(r)
	t.ongoing.Delete(r)
	r.Over, r.Expires, r.App, r.due = since, 0, "", m.at+store.CallsKept
	t.over.Set(r)
}

// expire ends a call whose time has passed.
func (t *callTable) expire(r *callRecord, m clockReading) store.CallStep {
	active := r.State == lastseen.Active
	r.Call = r.view(m)
	t.end(r, r.Over, m)
	if active {
		t.note(r)
	}
	return store.CallStep{Call: r.Call, Outcome: lastseen.Stepped, Expired: true, CallerOnly: r.callerOnly}
}

// setDue sets when a call expires.
func (t *callTable) setDue(r *callRecord, due time.Duration, m clockReading) {
	t.ongoing.Delete(r)
	r.due, r.Expires = due, m.wall.Add(due-m.at)
	t.ongoing.Set(r)
}

// keepAllAlive notes that users were active, and ends the calls of those who were active too late.
func (t *callTable) keepAllAlive(alive []store.KeepAlive, m clockReading, result *store.KeptAlive) {
	records := make([]*callRecord, len(alive))
	for i, h := range alive {
		r := t.current[h.User]
		switch {
		case r == nil || r.State != lastseen.Active:
		case r.passed(m):
			result.Steps = append(result.Steps, t.expire(r, m))
		case cmp.Or(r.Device(h.User), h.Device) == h.Device:
			records[i] = r
			t.keepAlive(r, r.Party(h.User), m)
		}
	}
	for i, r := range records {
		if r != nil {
			result.Calls[i] = store.AliveCall{ID: r.ID, Version: r.Version, Rest: r.due - m.at}
		}
	}
}

// expireAll ends calls whose time has passed, and forgets old ones.
func (t *callTable) expireAll(m clockReading) store.ExpiredCalls {
	forgotten := 0
	for r, ok := t.over.Min(); ok && r.due <= m.at && forgotten < store.MaxCallBatch; r, ok = t.over.Min() {
		t.remove(r)
		forgotten++
	}
	var x store.ExpiredCalls
	next, ok := t.ongoing.Min()
	for ; ok && next.due <= m.at && len(x.Steps) < store.MaxCallBatch; next, ok = t.ongoing.Min() {
		x.Steps = append(x.Steps, t.expire(next, m))
	}
	x.Calls, x.Kept, x.Next = t.ongoing.Len(), len(t.records), store.MaxCallGap/2
	if ok {
		x.Next = min(x.Next, next.due-m.at)
	}
	if max(len(x.Steps), forgotten) == store.MaxCallBatch {
		x.Next = 0
	}
	return x
}

// forget deletes the calls from and to a user.
func (t *callTable) forget(user string) {
	var found []*callRecord
	t.parties.Ascend(partyRecord{user, &callRecord{}}, func(p partyRecord) bool {
		if p.user == user {
			found = append(found, p.callRecord)
		}
		return p.user == user
	})
	for _, r := range found {
		t.remove(r)
		if r.State == lastseen.Active {
			t.note(r)
		}
	}
}
