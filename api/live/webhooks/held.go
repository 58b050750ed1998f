package webhooks

import (
	"container/list"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// change is what a receiver is told about a user.
type change struct {
	feed.Update
	due time.Time // when it has held for long enough
}

// held has the changes that wait until they have held for some time, in the order in which that ends. A user who is
// again as the receiver was told before needs no report.
type held struct {
	users map[string]*list.Element // of order
	order list.List                // of *change
}

// add adds a change, for a webhook's report and hold.
func (h *held) add(u feed.Update, w *Webhook, now time.Time) {
	before := u.Was
	if e := h.users[u.User]; e != nil {
		waiting := e.Value.(*change) //nolint:forcetypeassert // the list has nothing else
		before = waiting.Was
		if !w.Report.differs(waiting.Published, u.Published) { // it holds on
			u.Was = before
			waiting.Update = u
			return
		}
		h.order.Remove(e)
		delete(h.users, u.User)
	}
	if !w.Report.differs(before, u.Published) {
		return
	}
	if h.users == nil {
		h.users = map[string]*list.Element{}
	}
	u.Was = before
	h.users[u.User] = h.order.PushBack(&change{u, now.Add(w.Hold)})
}

// next returns when the first change is due, and false if there is none.
func (h *held) next() (due time.Time, any bool) {
	first := h.order.Front()
	if first == nil {
		return due, false
	}
	return first.Value.(*change).due, true //nolint:forcetypeassert // the list has nothing else
}

// take removes up to a number of changes that are due.
func (h *held) take(now time.Time, limit int) (due []change) {
	for at, ok := h.next(); ok && !at.After(now) && len(due) < limit; at, ok = h.next() {
		c := h.order.Remove(h.order.Front()).(*change) //nolint:forcetypeassert // the list has nothing else
		delete(h.users, c.User)
		due = append(due, *c)
	}
	return due
}

func (h *held) len() int { return h.order.Len() }

// differs reports whether a receiver is told about a user who was published as one, and is now as the other. The times
// make no difference, but that a user who was forgotten has none.
func (r Report) differs(was, is store.Published) bool {
	if r == Online {
		return isOnline(was) != isOnline(is)
	}
	return !was.Same(is) || !is.Known()
}

func isOnline(p store.Published) bool { return p.Status != lastseen.Grey }
