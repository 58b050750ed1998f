package audience

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// members are the users that a [Watcher] watches, with what is to be sent of them.
type members struct {
	order []*member // in the order of the query
	users map[string]*member
	list  []*member // in bytewise order; nil if it has to be sorted
	hash  [8]byte   // of their names, unless list is nil

	pending []*member // with something to send, in the order of their changes
}

// member is one of them.
type member struct {
	name    string
	seen    bool             // by the viewer; only those are followed in the feed
	gone    bool             // not watched any longer: to be sent as never seen once more
	sent    *store.Published // what the client has; nil for never seen
	news    *feed.Update     // to be sent; nil for never seen
	pending bool             // there is something to send
	forced  bool             // if pending: also if the client may know
}

func (m *members) names() []string {
	names := make([]string, len(m.order))
	for k, u := range m.order {
		names[k] = u.name
	}
	return names
}

// add begins to watch users, whom the viewer does not see at first.
func (m *members) add(names []string) {
	for _, name := range names {
		u := m.users[name]
		if u == nil {
			u = &member{name: name}
			m.users[name] = u
		} else if !u.gone {
			continue
		}
		u.gone = false
		m.order, m.list = append(m.order, u), nil
	}
}

// remove stops watching users, who are sent as never seen if the client was sent more.
func (m *members) remove(names []string) {
	for _, name := range names {
		if u := m.users[name]; u != nil {
			u.gone, u.forced = true, false
			m.hide(u)
		}
	}
	m.order, m.list = slices.DeleteFunc(m.order, func(u *member) bool { return u.gone }), nil
}

// drop removes users without sending anything about them.
func (m *members) drop(names []string) {
	m.remove(names)
	for _, name := range names {
		if u := m.users[name]; u != nil {
			u.pending = false
			delete(m.users, name)
		}
	}
}

// put notes the newest of a user, to be sent; nil for never seen.
func (m *members) put(u *member, news *feed.Update, forced bool) {
	u.news, u.forced = news, u.forced || forced
	if !u.pending {
		u.pending, m.pending = true, append(m.pending, u)
	}
}

// gather takes what the feed has. Of others than those whom the viewer sees it has nothing.
func (m *members) gather(b feed.Batch) {
	for k := range b.Users {
		if u := m.users[b.Users[k].User]; u != nil && u.seen {
			m.put(u, &b.Users[k], false)
		}
	}
}

// hide has a user whom the viewer does not see any longer be sent as never seen.
func (m *members) hide(u *member) {
	u.seen = false
	m.put(u, nil, false)
}

// send returns the newest of a user, and whether the client has to be sent that; it counts as sent.
func (u *member) send() (update feed.Update, ok bool) {
	update = neverSeen(u.name)
	var is *store.Published
	if u.news != nil && u.news.Published != update.Published {
		update = *u.news
		published := update.Published // not all of the batch is kept
		is = &published
	}
	ok = u.forced || (is == nil) != (u.sent == nil) || is != nil && !is.Same(*u.sent)
	u.sent, u.news, u.pending, u.forced = is, nil, false, false
	return update, ok
}

func neverSeen(user string) feed.Update {
	return feed.Update{User: user, Published: store.Published{Status: lastseen.Grey}}
}

// flush returns what is to be sent.
func (m *members) flush() (updates []feed.Update) {
	for _, u := range m.pending {
		if u.pending {
			if update, ok := u.send(); ok {
				updates = append(updates, update)
			}
		}
		if u.gone && m.users[u.name] == u {
			delete(m.users, u.name)
		}
	}
	m.pending = nil
	return updates
}

// all returns the presence of all users, in the order of the query, if that of those whom the viewer sees is pending.
func (m *members) all() []feed.Update {
	updates := make([]feed.Update, len(m.order))
	for k, u := range m.order {
		updates[k], _ = u.send()
	}
	for _, u := range m.pending {
		u.pending = u.pending && !u.gone // the client is to forget them
	}
	m.flush()
	return updates
}

// sorted returns the users in bytewise order, and a hash of their names.
func (m *members) sorted() ([]*member, [8]byte) {
	if m.list == nil {
		m.list = slices.SortedFunc(slices.Values(m.order), func(a, b *member) int {
			return strings.Compare(a.name, b.name)
		})
		hash := sha256.New()
		for _, u := range m.list {
			_, _ = hash.Write(append(binary.AppendUvarint(nil, uint64(len(u.name))), u.name...)) // it never fails
		}
		m.hash = [8]byte(hash.Sum(nil))
	}
	return m.list, m.hash
}
