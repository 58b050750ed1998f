package webhooks

import (
	"container/list"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// change is what a receiver learns about a user.
type change struct {
	feed.Update
	since time.Time        // when it began to hold
	from  []store.Position // before it, in the feed
}

// held has the changes that wait until they have held for some time, in the order in which they began. A user who is
// again as the receiver knows needs no report.
type held struct {
	users map[string]*list.Element // of order
	order list.List                // of *change
}

// add adds a change, for a webhook's report. It began to hold at a time, or when the change before did if that is
// later, and is read again from some positions.
func (h *held) add(u feed.Update, report Report, since time.Time, from []store.Position) {
	before := u.Was
	if e := h.users[u.User]; e != nil {
		waiting := changeOf(e)
		before = waiting.Was
		if !report.differs(waiting.Published, u.Published) { // it holds on
			u.Was = before
			waiting.Update = u
			return
		}
		h.order.Remove(e)
		delete(h.users, u.User)
	}
	if !report.differs(before, u.Published) {
		return
	}
	if h.users == nil {
		h.users = map[string]*list.Element{}
	}
	u.Was = before
	if last := changeOf(h.order.Back()); last != nil && last.since.After(since) {
		since = last.since
	}
	h.users[u.User] = h.order.PushBack(&change{u, since, from})
}

// first returns the change that began to hold first; nil if there is none.
func (h *held) first() *change { return changeOf(h.order.Front()) }

func changeOf(e *list.Element) *change {
	if e == nil {
		return nil
	}
	return e.Value.(*change) //nolint:forcetypeassert // the list has nothing else
}

// take removes up to a number of changes that began to hold at a time, or before.
func (h *held) take(until time.Time, limit int) (due []change) {
	for c := h.first(); c != nil && !c.since.After(until) && len(due) < limit; c = h.first() {
		h.order.Remove(h.users[c.User])
		delete(h.users, c.User)
		due = append(due, *c)
	}
	return due
}

func (h *held) len() int { return h.order.Len() }

// differs reports whether a receiver learns about a user who was published as one, and is now as the other. The times
// make no difference. What was published before a user was deleted is not known for certain.
func (r Report) differs(was, is store.Published) bool {
	if r == Online && is.Known() {
		return isOnline(was) != isOnline(is)
	}
	return !was.Same(is) || !is.Known()
}

func isOnline(p store.Published) bool {
	return p.Status == lastseen.Green || p.Status == lastseen.Yellow
}
