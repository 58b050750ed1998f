package feed

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// view is what readers see of a user besides the time. Two views are equal if readers see no difference.
type view struct {
	statusByte
	details store.Details
}

func viewOf(status lastseen.Status, left bool, d store.Details) view {
	v := view{toStatusByte(status, left), d}
	if d != (store.Details{}) {
		v.statusByte |= detailed
	}
	return v
}

// published returns the view as it was published, without the time.
func (v view) published() store.Published {
	return store.Published{
		State: lastseen.State{Left: v.left()}, Status: v.status(), Details: v.details,
	}
}

// before and after return the views before and after a change.
func before(c *store.Change) view { return viewOf(c.WasStatus, c.WasLeft, c.Was) }
func after(c *store.Change) view  { return viewOf(c.Status, c.Left, c.Details) }

// details keeps the details of a memory beside it, since most users have none. Each map has the details of those whose
// statusByte has the bit detailed.
type details struct {
	was, is map[int64]store.Details  // of entries, by number
	users   map[*user]store.Details  // by their newest changes
	watches map[*watch]store.Details // that are dirty: as the watchers were sent
}

func newDetails() details {
	return details{
		was: map[int64]store.Details{}, is: map[int64]store.Details{},
		users: map[*user]store.Details{}, watches: map[*watch]store.Details{},
	}
}

// setDetails stores the details of a view, or deletes earlier ones if it has none.
func setDetails[K comparable](in map[K]store.Details, of K, v view) {
	if v.statusByte&detailed != 0 {
		in[of] = v.details
	} else if len(in) > 0 {
		delete(in, of)
	}
}

// withDetails returns the view with the details that were stored.
func withDetails[K comparable](in map[K]store.Details, of K, s statusByte) view {
	v := view{statusByte: s}
	if s&detailed != 0 {
		v.details = in[of]
	}
	return v
}

// viewAt returns the view after the entry with a number, and viewBefore that before it.
func (m *memory) viewAt(n int64) view     { return withDetails(m.details.is, n, m.at(n).now) }
func (m *memory) viewBefore(n int64) view { return withDetails(m.details.was, n, m.at(n).was) }

// viewOf returns the view after the newest change of a user.
func (m *memory) viewOf(u *user) view { return withDetails(m.details.users, u, u.now) }

// dropDetails deletes the details of an entry.
func (m *memory) dropDetails(n int64) {
	setDetails(m.details.was, n, view{})
	setDetails(m.details.is, n, view{})
}

// sentView returns the view that the watcher of a dirty watch was sent, and setSentView stores it; it is the zero view
// for one that is not dirty.
func (m *memory) sentView(t *watch) view { return withDetails(m.details.watches, t, t.was) }

func (m *memory) setSentView(t *watch, v view) {
	t.was = v.statusByte
	setDetails(m.details.watches, t, v)
}
