package main

import (
	"slices"
	"sync"
)

// message is a line of the conversation. Without a user, it explains what happens.
type message struct {
	User string `json:"user,omitempty"`
	Text string `json:"text"`
}

// event is what pages are sent: a message, or a user who is in the chat.
type event struct {
	Message *message `json:"message,omitempty"`
	Member  string   `json:"member,omitempty"`
	number  int      // counts up
}

// Limits of a room.
const (
	maxMessages = 50  // the newest
	maxMembers  = 200 // later ones can read and write, but are not listed
)

// room is the conversation, in memory.
type room struct {
	mu      sync.Mutex
	members map[string]bool
	events  []event       // the members, and the newest messages
	last    int           // number of the last event
	changed chan struct{} // closed by the next event
}

// newRoom returns a room with members.
func newRoom(members ...string) *room {
	r := &room{members: map[string]bool{}, changed: make(chan struct{})}
	for _, user := range members {
		r.join(user)
	}
	return r
}

// join adds a member.
func (r *room) join(user string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.members[user] && len(r.members) < maxMembers {
		r.members[user] = true
		r.add(event{Member: user})
	}
}

// post adds messages.
func (r *room) post(messages ...message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		r.add(event{Message: &m})
		if len(r.events)-len(r.members) > maxMessages {
			oldest := slices.IndexFunc(r.events, func(e event) bool { return e.Message != nil })
			r.events = slices.Delete(r.events, oldest, oldest+1)
		}
	}
}

// add adds an event. The caller holds the mutex.
func (r *room) add(e event) {
	r.last++
	e.number = r.last
	r.events = append(r.events, e)
	close(r.changed)
	r.changed = make(chan struct{})
}

// after returns the events after a number, and a channel that is closed when there are more.
func (r *room) after(number int) (events []event, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := func(e event) bool { return e.number <= number }
	return slices.DeleteFunc(slices.Clone(r.events), seen), r.changed
}
