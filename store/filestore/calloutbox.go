package filestore

import (
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// show has the parties of an active call shown to be in it until it expires.
func (t *callTable) show(r *callRecord, m moment) []store.InCall {
	r.shownUntil, r.shownDue = r.Expires, r.due
	return t.note(r, m)
}

// note notes that the parties of a call have to be copied, where calls are shown.
func (t *callTable) note(r *callRecord, m moment) []store.InCall {
	if !r.shown {
		return nil
	}
	in := make([]store.InCall, 2)
	for i, user := range []string{r.From, r.To} {
		t.outbox.note(user, m.ticked)
		in[i] = t.inCall(user)
	}
	return in
}

// inCall returns until when a user is shown to be in a call at present.
func (t *callTable) inCall(user string) store.InCall {
	in := store.InCall{User: user}
	if r := t.current[user]; r != nil && r.State == lastseen.Active && r.shown {
		in.Until = r.shownUntil
	}
	return in
}

// outbox holds the users who have to be copied.
type outbox struct {
	noted map[string]noted
	order *btree.BTreeG[noted]
	next  uint64
}

type noted struct {
	user   string
	number uint64
	at     time.Duration // by the monotonic clock
}

func newOutbox() outbox {
	before := func(a, b noted) bool { return a.number < b.number }
	return outbox{noted: map[string]noted{}, order: btree.NewBTreeGOptions(before, btree.Options{NoLocks: true})}
}

func (o *outbox) len() int { return len(o.noted) }

func (o *outbox) note(user string, at time.Duration) {
	o.remove(user)
	n := noted{user, o.next, at}
	o.next++
	o.noted[user] = n
	o.order.Set(n)
}

func (o *outbox) remove(user string) {
	if n, ok := o.noted[user]; ok {
		delete(o.noted, user)
		o.order.Delete(n)
	}
}

// until returns users who were noted up to a time, the oldest first.
func (o *outbox) until(at time.Duration) (users []string) {
	o.order.Scan(func(n noted) bool {
		if n.at > at || len(users) == store.MaxCallBatch {
			return false
		}
		users = append(users, n.user)
		return true
	})
	return users
}

// confirm removes users who were copied from the outbox. It returns those whose value has changed since.
func (t *callTable) confirm(in []store.InCall, m moment) (changed []store.InCall) {
	for _, copied := range in {
		now := t.inCall(copied.User)
		if now == copied {
			t.outbox.remove(copied.User)
			continue
		}
		changed = append(changed, now)
		if _, ok := t.outbox.noted[copied.User]; !ok {
			t.outbox.note(strings.Clone(copied.User), m.ticked)
		}
	}
	return slices.Clip(changed)
}
