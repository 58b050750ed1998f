package session

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// The kinds of signals between servers.
const (
	signalSelf   = "self"   // the user's availability has changed; without a user, that of all users of the namespace
	signalTyping = "typing" // the user types: see typing
)

// Listen passes the signals of all servers on to the connections to this one, until the context ends. A handler has to
// exist.
func (h *Hub) Listen(ctx context.Context) {
	h.newest.Load().Store.Listen(ctx, h.receive)
}

// receive handles a signal. It does not wait for the store or for clients.
func (h *Hub) receive(signal store.Signal) {
	defer h.recoverSignal()
	switch {
	case signal.Kind == signalSelf && signal.User != "":
		of := lastseen.UserKey{Namespace: signal.Namespace, User: signal.User}
		h.userStates.refresh(of, reason{availability: true, renewed: true})
	case signal.Kind == signalSelf:
		h.userStates.refreshAll(signal.Namespace)
	case signal.Kind == signalTyping:
		h.deliverTyping(signal)
	case signal.Kind == "":
		h.newest.Load().Calls.Receive(signal)
		h.userStates.refreshAll("")
	default:
		h.newest.Load().Calls.Receive(signal)
		h.userStates.receiveCall(signal.Namespace, calls.OfSignal(signal))
	}
}

// recoverSignal logs a panic of what handles a signal.
func (h *Hub) recoverSignal() {
	if panicked := recover(); panicked != nil {
		h.Failures.Defects.Log(slog.LevelError, "signal", "a signal could not be handled",
			slog.String("error", fmt.Sprint(panicked)))
	}
}

// sessionsOf returns the sessions of a user, also those that are being opened.
func (h *Hub) sessionsOf(p lastseen.UserKey) (sessions []*session) {
	for _, peer := range h.newest.Load().Connections.Peers(p.Namespace, p.User) {
		if n, ok := peer.(*session); ok {
			sessions = append(sessions, n)
		}
	}
	return sessions
}

// receiveCall has the parties of a call learn of a change, in the order of the signal. Work for the callee begins once
// the caller's connections were sent it, so that this does not take longer if an invisible callee is connected.
func (s *userStates) receiveCall(namespace string, change calls.Change) {
	if len(change.Users) == 0 {
		return
	}
	key := lastseen.UserKey{Namespace: namespace, User: change.Users[0]}
	why := reason{ids: []string{change.ID}}
	if change.Users = change.Users[1:]; len(change.Users) > 0 {
		why.then = []func(){func() { s.receiveCall(namespace, change) }}
	}
	if s.setSignalled(key, change.Call) {
		s.whenSent(key, why.callThen)
		return
	}
	s.refresh(key, why)
}

// whenSent calls do once the connections of a user were sent what they were woken for, or after a while: a slow client
// delays others no longer.
func (s *userStates) whenSent(key lastseen.UserKey, do func()) {
	s.mu.Lock()
	st := s.users[key]
	if st == nil || st.sending == 0 || len(st.afterSent) >= maxCallsToRefresh {
		s.mu.Unlock()
		do()
		return
	}
	do = sync.OnceFunc(do)
	safely := func() {
		defer s.hub.recoverSignal()
		do()
	}
	st.afterSent = append(st.afterSent, safely)
	s.after(maxSending, safely)
	s.mu.Unlock()
}

// setSignalled notes a call as a signal has it, and reports whether it need not be read. It takes what the app says
// now, which changes often, and nothing else: who can publish must not make a phone ring, nor have a call end.
func (s *userStates) setSignalled(key lastseen.UserKey, c *lastseen.Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.users[key]
	if st == nil {
		return true
	}
	st.wakePolls()
	if c == nil {
		return false
	}
	known := st.call(c.ID)
	if known == nil {
		return false
	}
	same := known.Call
	same.App = c.App
	switch {
	case known.State.Over():
		return true
	case !sameCall(*c, same), c.Version < known.Version:
		return false
	case c.Version > known.Version:
		known.replace(st, *c)
		return true
	default:
		return c.App == known.App
	}
}
