package feed

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// change has a reader watch other users. At times it watches users again whom it did before, from where it stopped.
func (p *play) change(k int) {
	r := p.readers[k]
	var c Change
	for range p.random.IntN(3) {
		c.Remove = append(c.Remove, p.user())
	}
	for range p.random.IntN(4) {
		c.Add = append(c.Add, p.user())
	}
	var known map[string]Update
	if len(r.parked) > 0 && p.random.IntN(2) == 0 {
		again := r.parked[p.random.IntN(len(r.parked))]
		c.Add, c.After, known = again.users, again.positions, again.view
	}
	b, err := r.watcher.Change(p.t.Context(), c)
	if err != nil {
		require.ErrorIs(p.t, err, store.ErrUnavailable)
		return
	}
	p.changed(r, c, known, b)
}

// changed has a reader take the batch of a change.
func (p *play) changed(r *reader, c Change, known map[string]Update, b Batch) {
	removed := parked{positions: b.Positions, view: map[string]Update{}}
	for _, user := range c.Remove {
		if u, sent := r.view[user]; sent && !slices.Contains(c.Add, user) && !slices.Contains(removed.users, user) {
			removed.users, removed.view[user] = append(removed.users, user), u
		}
	}
	for _, user := range slices.Concat(c.Remove, c.Add) {
		delete(r.view, user)
		r.users = slices.DeleteFunc(r.users, func(u string) bool { return u == user })
	}
	r.users = append(r.users, store.Without(c.Add, nil)...)
	for _, u := range b.Users {
		require.Contains(p.t, r.users, u.User, "not watched")
	}
	if len(c.Add) == 0 {
		require.Empty(p.t, b.Users)
		if b.Positions != nil {
			// What the reader knows of the users it does not watch any more fits these positions, as for the others.
			r.positions = b.Positions
			if len(removed.users) > 0 {
				r.parked = append(r.parked, removed)
			}
		}
		return
	}
	for _, user := range store.Without(c.Add, nil) {
		sent := slices.ContainsFunc(b.Users, func(u Update) bool { return u.User == user })
		require.True(p.t, sent || c.After != nil, "a user who was added is missing")
	}
	added := map[string]Update{}
	maps.Copy(added, known)
	r.changing = true
	r.take(b, p)
	r.changing = false
	for user, u := range added { // those who did not change since
		if _, sent := r.view[user]; !sent {
			r.view[user] = u
		}
	}
}
