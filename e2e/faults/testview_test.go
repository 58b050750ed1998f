//go:build faults

package faults

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
)

// checkEvery is how often a view is compared with the ledger.
const checkEvery = time.Second

// feedEvent is an event of a changes feed.
type feedEvent struct {
	name, id string
	received time.Time
	feedData
}

// feedData is the data of an event.
type feedData struct {
	AsOf   string        `json:"as_of"`
	Users  []fedPresence `json:"users"`
	Cursor string        `json:"cursor"`
	More   bool          `json:"more"`
}

// fedPresence is a user in a changes feed.
type fedPresence struct {
	presence
	ValidUntil *string `json:"valid_until"`
}

// told is what a watcher was told about a user.
type told struct {
	status lastseen.Status
	state  lastseen.State
}

func (a told) same(b told) bool { return a.status == b.status && a.state.Left == b.state.Left }

// view is what a watcher was told. Its rules:
//
//   - Nothing is told twice: an update differs from what the watcher knew of the user, except in the pages of a
//     snapshot of everyone.
//   - Nothing is missed: once all was told up to a time, each user is what their acknowledged writes make of them at
//     that time, if the ledger knows that for certain.
//   - A reset ends what was told before, so neither rule applies across it.
//   - A time up to which all was told does not go back while a connection lasts, and is not ahead of the clock.
//   - A watcher continues from the last ID that it got. What was told after that does not count.
type view struct {
	name       string
	ledger     *ledger
	thresholds lastseen.Thresholds
	watched    []string // nil for everyone

	told    map[string]told
	undo    map[string]told // what was known, at the last ID, of users told since
	id      string
	asOf    lastseen.Instant // all was told up to here
	partly  bool             // more was told since, but not all up to a later time
	paging  bool             // a snapshot of everyone is not complete
	newest  lastseen.Instant // when the last event was received
	checked time.Time
	stats   viewStats
}

// viewStats are what a watcher got.
type viewStats struct {
	events, updates, resets int
	checks                  int // of a user's status against the ledger
}

func newView(name string, l *ledger, t lastseen.Thresholds, watched []string) *view {
	return &view{
		name: name, ledger: l, thresholds: t, watched: watched, told: map[string]told{}, undo: map[string]told{},
		paging: watched == nil,
	}
}

// connect begins a connection that continues after the last ID.
func (v *view) connect() {
	for user, before := range v.undo {
		v.told[user] = before
		if before.status == "" {
			delete(v.told, user)
		}
	}
	clear(v.undo)
	v.asOf, v.partly = 0, false
}

// apply notes an event.
func (v *view) apply(e feedEvent) {
	v.stats.events++
	v.newest = lastseen.InstantOf(e.received)
	if e.name == "reset" {
		v.asOf = 0 // a failover can have lost how far the feed was
	}
	asOf, err := lastseen.ParseTime(e.AsOf)
	switch {
	case err != nil:
		v.violate("as_of of %s: %v", e.name, err)
	case asOf < v.asOf:
		v.violate("as_of of %s went back from %d to %d", e.name, v.asOf, asOf)
	case asOf > lastseen.InstantOf(e.received.Add(clockTolerance)):
		v.violate("as_of of %s is %s at %s", e.name, e.AsOf, e.received)
	case e.Cursor == "":
		v.violate("%s without a cursor", e.name)
	}
	switch e.name {
	case "reset":
		v.stats.resets++
		clear(v.told)
		clear(v.undo)
		v.paging = v.watched == nil
	case "tick":
		if len(e.Users) > 0 || e.More {
			v.violate("a tick with users: %+v", e.feedData)
		}
	case "changes":
	default:
		v.violate("unknown event %q", e.name)
	}
	v.applyUsers(e)
	if e.id != "" && e.id != v.id {
		v.id = e.id
		clear(v.undo)
	}
	if v.partly = e.More; !e.More {
		v.asOf, v.paging = asOf, false
		v.checkAll(e.received)
	}
}

// violate notes that an event broke a rule.
func (v *view) violate(format string, args ...any) {
	v.ledger.violate("%s: "+format, append([]any{v.name}, args...)...)
}

// applyUsers notes the users of an event.
func (v *view) applyUsers(e feedEvent) {
	seen := map[string]bool{}
	for _, user := range e.Users {
		now, err := v.parse(user)
		if err != nil || seen[user.User] {
			v.violate("%s, twice or wrong: %+v: %v", e.name, user, err)
			continue
		}
		seen[user.User] = true
		before := v.told[user.User]
		known := before.state.Known() == now.state.Known()
		if known && before.same(now) && !v.paging {
			v.violate("%s was told twice: %s %+v, before %+v", user.User, now.status, now.state, before.state)
		}
		if _, ok := v.undo[user.User]; !ok {
			v.undo[user.User] = before
		}
		v.told[user.User] = now
		v.stats.updates++
	}
}

// parse checks a user in an event by itself.
func (v *view) parse(user fedPresence) (told, error) {
	state, err := user.state()
	now := told{user.Status, state}
	switch {
	case err != nil:
		return now, err
	case user.ValidUntil != nil:
		return now, errors.New("with valid_until")
	case v.watched != nil && !slices.Contains(v.watched, user.User):
		return now, errors.New("not watched")
	case !slices.Contains([]lastseen.Status{lastseen.Green, lastseen.Yellow, lastseen.Grey}, now.status),
		(state.Left || !state.Known()) && now.status != lastseen.Grey:
		return now, errors.New("with an impossible status")
	}
	v.ledger.checkAttempted(user.presence, state)
	return now, nil
}

// checkAll compares every user told with the ledger, now and then.
func (v *view) checkAll(now time.Time) {
	if now.Sub(v.checked) < checkEvery {
		return
	}
	v.checked = now
	settledAt := time.UnixMilli(int64(v.asOf)).Add(-clockTolerance)
	for user, known := range v.told {
		if state, ok := v.ledger.settled(user, settledAt); ok {
			v.stats.checks++
			v.check(user, known, state)
		}
	}
}

// check compares a user with the state that they have had for certain. Users may have turned yellow or grey after the
// time up to which everything was told: events can have changes that are later than as_of.
func (v *view) check(user string, known told, state ack) {
	right := told{v.thresholds.Presence(user, state.state, v.asOf).Status, state.state}
	if !known.state.Known() && state.state.Left {
		return // the leave of a user never seen before is not a change
	}
	transition := known.state.At.Add(v.thresholds.Green)
	if known.status == lastseen.Grey {
		transition = known.state.At.Add(v.thresholds.Yellow)
	}
	early := known.state == state.state && !known.state.Left && known.status != lastseen.Green &&
		v.asOf < transition && transition <= v.newest.Add(clockTolerance)
	if !known.same(right) && !early || known.state.Compare(state.state) > 0 {
		const text = "%s: %s was told as %s %+v, but is %s %+v, acknowledged at %s, as of %s, known at %s"
		v.ledger.note(violation{fmt.Sprintf(text, v.name, user, known.status, known.state, right.status, right.state,
			state.received.Format(time.StampMilli), v.asOf, v.checked.Format(time.StampMilli)), &state})
	}
}

// checkExactly compares every user told with states that are certain, and returns how many that were. It is not ok if
// not all was told up to a time after the given one.
func (v *view) checkExactly(states map[string]lastseen.State, after lastseen.Instant) (n int, ok bool) {
	if v.asOf <= after || v.partly {
		return 0, false
	}
	for user, known := range v.told {
		if state, ok := states[user]; ok {
			n++
			v.check(user, known, ack{state: state})
		}
	}
	return n, true
}
