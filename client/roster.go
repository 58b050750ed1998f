package client

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

// Roster keeps what [Client.FollowChanges] sends: the newest presence of each user. Use it as
//
//	for changes, err := range presence.FollowChanges(ctx, "chat", client.Follow{}) {
//		roster.Apply(changes, err)
//	}
//
// and read it from any goroutine. The zero value is ready. What it has is known while changes arrive: for 30 seconds
// after the last ones.
type Roster struct {
	mu    sync.RWMutex
	users map[string]Presence
	begun bool // with all users, which a stream has that begins without a cursor
	more  bool // of the changes applied last
	whole bool // who is not in users does not exist
	heard time.Time
	now   func() time.Time // nil for time.Now
}

// Apply takes over changes. With an error it does nothing.
func (r *Roster) Apply(changes Changes, err error) {
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if changes.Reset || r.users == nil {
		r.users = map[string]Presence{}
	}
	for _, p := range changes.Users {
		if changes.everyone && p.Status == lastseen.Grey && p.LastSeen.IsZero() {
			delete(r.users, p.User) // who was deleted
			continue
		}
		r.users[p.User] = p
	}
	r.begun, r.more = r.begun || changes.Reset, changes.More
	r.whole = changes.everyone
	r.heard = r.time()
}

// Get returns a user's presence, and whether it is known now. If everyone is followed and the snapshot is complete, a
// user whom no change named is known to be grey. Otherwise that user is unknown, which does not mean offline.
func (r *Roster) Get(user string) (p Presence, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if p, known = r.users[user]; known {
		return p, r.current()
	}
	return Presence{User: user, Status: lastseen.Grey}, r.whole && r.begun && !r.more && r.current()
}

// All returns the users in the order of their IDs, and whether they are known now and complete: those that are
// followed, or with NoSnapshot those who changed. After a Cursor, they are complete after a reset.
func (r *Roster) All() (users []Presence, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	users = slices.SortedFunc(maps.Values(r.users), func(a, b Presence) int { return strings.Compare(a.User, b.User) })
	return users, r.begun && !r.more && r.current()
}

// current reports whether changes have arrived of late.
func (r *Roster) current() bool { return r.users != nil && r.time().Sub(r.heard) < silence }

func (r *Roster) time() time.Time {
	if r.now == nil {
		return time.Now()
	}
	return r.now()
}
