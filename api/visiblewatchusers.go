package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// visibleUsers are the users that a [visibleWatcher] watches, with what is published of them, whether the viewer sees
// them, and what the client was told.
type visibleUsers struct {
	users map[string]*visibleUser
	order []*visibleUser // those who are watched, in the order of the query
	dirty []*visibleUser // that the client may not know as they are now, in the order of their changes
	hash  string         // of what was told; "" if it has to be computed
}

// visibleUser is one of them. The pointers are nil for never seen: most users are that for a viewer, or were told what
// is published.
type visibleUser struct {
	name      string
	published *store.Published
	told      *store.Published
	recorded  lastseen.Instant // when the change that was not told yet was recorded; 0 if it is not known
	watched   bool             // false: to be told as never seen, and then forgotten
	seen      bool             // by the viewer
	dirty     bool
	force     bool // if dirty: tell, whatever was told
}

// target returns what the client may know of a user.
func (u *visibleUser) target() *store.Published {
	if !u.seen || !u.watched {
		return nil
	}
	return u.published
}

// differs reports whether the user has to be told.
func (u *visibleUser) differs() bool {
	target := u.target()
	if u.force || target == nil || u.told == nil {
		return u.force || target != u.told
	}
	return !target.Same(*u.told)
}

// update notes that the target is told, and returns it.
func (u *visibleUser) update() feed.Update {
	update := feed.Update{User: u.name, Published: store.Published{Status: lastseen.Grey}, Recorded: u.recorded}
	if u.told = u.target(); u.told != nil {
		update.Published = *u.told
	}
	u.recorded, u.dirty, u.force = 0, false, false
	return update
}

// add begins to watch users, whom the viewer does not see at first.
func (v *visibleUsers) add(names []string) {
	for _, name := range names {
		u := v.users[name]
		if u == nil {
			u = &visibleUser{name: name}
			v.users[name] = u
		}
		if !u.watched {
			u.watched = true
			v.order = append(v.order, u)
		}
	}
	v.hash = ""
}

// tellMembers has users told who were added to those watched, even as never seen: the client learns who they
// are.
func (v *visibleUsers) tellMembers(names []string) {
	for _, name := range names {
		u := v.users[name]
		v.mark(u)
		u.force = true
	}
}

// remove stops watching users. They have to be told as never seen, unless drop forgets them.
func (v *visibleUsers) remove(names []string) {
	for _, name := range names {
		if u := v.users[name]; u != nil {
			u.watched, u.seen, u.published = false, false, nil
			v.mark(u)
		}
	}
	v.order = slices.DeleteFunc(v.order, func(u *visibleUser) bool { return !u.watched })
	v.hash = ""
}

// drop forgets users who are not watched any longer.
func (v *visibleUsers) drop() {
	for name, u := range v.users {
		if !u.watched {
			delete(v.users, name)
		}
	}
	v.dirty = slices.DeleteFunc(v.dirty, func(u *visibleUser) bool { return !u.watched })
	v.hash = ""
}

// names returns the users who are watched, in the order of the query.
func (v *visibleUsers) names() []string {
	names := make([]string, len(v.order))
	for k, u := range v.order {
		names[k] = u.name
	}
	return names
}

// publish takes what the feed says of users.
func (v *visibleUsers) publish(b feed.Batch) {
	updates := b.Users
	for k := range updates {
		u := v.users[updates[k].User]
		if u == nil || !u.watched {
			continue
		}
		u.published = nil
		if published := updates[k].Published; published != (store.Published{Status: lastseen.Grey}) {
			u.published = &published
		}
		if u.seen {
			u.recorded = updates[k].Recorded
			v.mark(u)
		}
	}
}

// show notes whether the viewer sees a user.
func (v *visibleUsers) show(name string, seen bool) {
	if u := v.users[name]; u != nil && u.watched && u.seen != seen {
		if u.seen, u.recorded = seen, 0; !seen {
			u.published = nil
		}
		v.mark(u)
	}
}

// mark notes that a user may have to be told.
func (v *visibleUsers) mark(u *visibleUser) {
	if !u.dirty {
		u.dirty = true
		v.dirty = append(v.dirty, u)
	}
}

// unsettled reports whether there is something to tell.
func (v *visibleUsers) unsettled() bool {
	return slices.ContainsFunc(v.dirty, (*visibleUser).differs)
}

// tell returns the users who differ from what the client was told, up to a limit, and whether there are more.
func (v *visibleUsers) tell(limit int) (updates []feed.Update, more bool) {
	rest := v.dirty[:0]
	for _, u := range v.dirty {
		switch {
		case !u.differs():
			u.dirty, u.recorded = false, 0
		case len(updates) == limit:
			rest = append(rest, u)
			continue
		default:
			updates = append(updates, u.update())
			v.hash = ""
		}
		if !u.watched {
			delete(v.users, u.name)
		}
	}
	clear(v.dirty[len(rest):])
	v.dirty = rest
	return updates, len(rest) > 0
}

// tellAll returns all users who are watched, in the order of the query.
func (v *visibleUsers) tellAll() []feed.Update {
	updates := make([]feed.Update, len(v.order))
	for k, u := range v.order {
		u.recorded = 0
		updates[k] = u.update()
	}
	v.dirty = nil
	v.drop()
	return updates
}

// placePart is the place of a part of a batch. No query continues after it.
const placePart store.Place = "seen-x"

// partCursor returns the cursor of all parts of a batch but the last. It is the one before the batch, or none. But the
// places of a [visibleWatcher] are hashes: if what a part said is undone before the client comes back, they are the
// same as before the batch, and the client would not be told. So those parts have a cursor that leads to a reset.
func partCursor(w changesWatcher, namespace, before string) string {
	if _, ok := w.(*visibleWatcher); ok {
		return changesCursor(namespace, []store.Place{placePart})
	}
	return before
}

// place returns the place of a batch: a hash of what was told, so that it has nothing of other users. A client with
// this place knows all there is if the hash of what it may know now is the same.
func (v *visibleUsers) place() store.Place {
	if v.hash == "" {
		told := make([]*visibleUser, 0, len(v.users))
		for _, u := range v.users {
			told = append(told, u)
		}
		v.hash = hashTold(told)
	}
	return placeOf(v.hash)
}

func placeOf(hash string) store.Place { return store.Place("seen-f-" + hash) }

// hashTold returns a hash of what was told of users. Those told as never seen are in it: else it would be the place of
// a query that names others.
func hashTold(users []*visibleUser) string {
	told := make([]*visibleUser, 0, len(users))
	for _, u := range users {
		if u.watched || u.told != nil {
			told = append(told, u)
		}
	}
	slices.SortFunc(told, func(a, b *visibleUser) int { return strings.Compare(a.name, b.name) })
	hash := sha256.New()
	b := make([]byte, 0, 512)
	for _, u := range told {
		var p store.Published // of one never seen: those who were seen have a status
		if u.told != nil {
			p = *u.told
		}
		b = appendTold(b[:0], u.name, p)
		_, _ = hash.Write(b) // it never fails
	}
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:16])
}

// appendTold appends what a user was told as. The time of a green user is not in it: it changes with each ping.
func appendTold(b []byte, name string, p store.Published) []byte {
	at, left := p.At, byte(0)
	if p.Status == lastseen.Green {
		at = 0
	}
	if p.Left {
		left = 1
	}
	for _, text := range []string{name, string(p.Status), string(p.Said.Availability), p.Said.Note} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	for _, n := range []lastseen.Instant{at, p.Said.Until, p.IdleSince, p.InCallUntil} {
		b = binary.AppendVarint(b, int64(n))
	}
	return append(b, left)
}

// tellAdded returns users who were added; nobody if the client knows them from a place.
func (v *visibleUsers) tellAdded(names []string, after []store.Place) []feed.Update {
	users, updates := make([]*visibleUser, len(names)), make([]feed.Update, len(names))
	for k, name := range names {
		users[k] = v.users[name]
		updates[k] = users[k].update()
	}
	v.hash = ""
	if slices.Equal(after, []store.Place{placeOf(hashTold(users))}) {
		return nil
	}
	return updates
}
