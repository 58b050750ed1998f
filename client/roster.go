package client

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/lastseen/lastseen"
)

// Roster keeps what [Client.FollowChanges] sends: the newest presence of each user. Use it as
//
//	for changes, err := range presence.FollowChanges(ctx, "chat", client.Follow{}) {
//		roster.Apply(changes, err)
//	}
//
// and read it from any goroutine. The zero value is ready.
type Roster struct {
	mu       sync.RWMutex
	users    map[string]Presence
	complete bool
}

// Apply takes over changes, or notes that the stream was interrupted.
func (r *Roster) Apply(changes Changes, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.complete = false
		return
	}
	if changes.Reset || r.users == nil {
		r.users = map[string]Presence{}
	}
	for _, p := range changes.Users {
		if p.Status == lastseen.Grey && p.LastSeen.IsZero() && p.Availability == "" && p.Note == "" {
			delete(r.users, p.User) // deleted, no contact any more, or never seen
			continue
		}
		r.users[p.User] = p
	}
	r.complete = !changes.More
}

// Get returns a user, who is grey if nothing is known of them. It reports whether that is true now: not before all
// users have been read, nor while the stream is interrupted. Unknown is not offline.
func (r *Roster) Get(user string) (p Presence, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, ok := r.users[user]
	if !ok {
		p = Presence{User: user, Status: lastseen.Grey}
	}
	return p, r.complete
}

// All returns all users in the order of their IDs, and whether that is true now, as [Roster.Get].
func (r *Roster) All() (users []Presence, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	users = slices.SortedFunc(maps.Values(r.users), func(a, b Presence) int { return strings.Compare(a.User, b.User) })
	return users, r.complete
}
