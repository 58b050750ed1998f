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
}

// Limits of a room.
const (
	maxMessages = 50  // that a new page gets
	maxMembers  = 200 // later ones can read and write, but are not listed
	maxUnsent   = 64  // events to a page; a page that falls behind has to connect again
)

// room is the conversation, in memory, and the pages that show it.
type room struct {
	mu       sync.Mutex
	members  []string
	messages []message
	pages    map[chan event]bool
}

func newRoom(members []string) *room {
	return &room{members: members, pages: map[chan event]bool{}}
}

// join adds a member and a page. It returns what the page shows at first, later events, and a function that removes the
// page. The channel is closed if the page falls behind.
func (r *room) join(user string) (shown []event, later <-chan event, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.members, user) && len(r.members) < maxMembers {
		r.members = append(r.members, user)
		r.send(event{Member: user})
	}
	for _, member := range r.members {
		shown = append(shown, event{Member: member})
	}
	for _, m := range r.messages {
		shown = append(shown, event{Message: &m})
	}
	page := make(chan event, maxUnsent)
	r.pages[page] = true
	return shown, page, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.pages, page)
	}
}

// post adds messages.
func (r *room) post(messages ...message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		r.messages = append(r.messages, m)
		r.send(event{Message: &m})
	}
	r.messages = slices.Clone(r.messages[max(0, len(r.messages)-maxMessages):])
}

// send sends an event to all pages.
func (r *room) send(e event) {
	for page := range r.pages {
		select {
		case page <- e:
		default:
			delete(r.pages, page)
			close(page)
		}
	}
}
