package session

import (
	"errors"
	"runtime"
	"sync"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
)

// check checks the caller again, with the keys and tokens that are valid now. It closes the session if it can no longer
// be held, and ends it alone if there is a defect.
func (n *session) check() bool {
	defer func() { n.recovered(recover()) }()
	n.mu.Lock()
	greeted, caller, credentials, ctx := n.greeted, n.caller, n.credentials, n.ctx
	n.mu.Unlock()
	if !greeted {
		return true
	}
	current, err := n.Authenticate(ctx, credentials)
	current, err = guard.Confirm(caller, current, err, n.newest.Load().Now())
	switch {
	case err == nil && !caller.Same(current): // limits are kept by caller
		err = problem.New(problem.Forbidden, "The credentials belong to another caller now.")
	case err == nil:
		err = n.permit(current)
	case errors.Is(err, auth.ErrUnauthenticated) && caller != nil && caller.Kind == auth.ByKey: // do not try again
		err = problem.New(problem.Forbidden, "The API key is not valid any longer.").Because(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.caller != caller: // the client has sent another token meanwhile
	case err != nil:
		go n.close(err) // it can take a moment
		return false
	default:
		n.caller = current
	}
	return true
}

// checkReload checks the caller again if there was a reload since it was authenticated for a server: the check that
// follows a reload may have come too early.
func (n *session) checkReload(s *Server) {
	if n.newest.Load() != s {
		n.check()
	}
}

// checkSockets checks the callers of all WebSockets again after a reload, on all processors: verifying the tokens of
// all clients takes seconds. API keys come first: many connections can have the same, and they are what operators
// remove in an emergency. A session that has not said hello is checked once it is welcome: see checkReload.
func (h *Hub) checkSockets() {
	work := make(chan *session)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := range work {
				n.check()
			}
		})
	}
	for _, n := range keysFirst(h.sockets.all()) {
		work <- n
	}
	close(work)
	workers.Wait()
}

// keysFirst sorts sessions: those of tokens are last.
func keysFirst(sessions []*session) []*session {
	var ofKeys, ofTokens []*session
	for _, n := range sessions {
		if caller := n.currentCaller(); caller != nil && caller.Kind == auth.ByToken {
			ofTokens = append(ofTokens, n)
		} else {
			ofKeys = append(ofKeys, n)
		}
	}
	return append(ofKeys, ofTokens...)
}

// permit returns an error unless a caller can do what the session does, and what it watches is shown as before.
func (n *session) permit(caller *auth.Caller) error {
	n.mu.Lock()
	user, following := n.user, n.following
	n.mu.Unlock()
	newest := n.newest.Load()
	if err := newest.permitSession(n.namespace, user, following != nil, caller); err != nil || following == nil {
		return err
	}
	return newest.CheckVisibility(n.namespace, following.restricted)
}

// permitSession returns an error unless a caller can hold a connection of a user, or for none, and watch.
func (s *Server) permitSession(namespace, user string, watches bool, caller *auth.Caller) error {
	if user != "" {
		if err := guard.PingSelf.Check(namespace, user, caller); err != nil {
			return err
		}
	}
	if watches || user == "" {
		if err := guard.Read.Check(namespace, user, caller); err != nil {
			return err
		}
	}
	return s.CheckServed(namespace)
}
