package session

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
)

// check checks the caller again, with the keys and tokens that are valid now, and closes it if it is not any
// longer.
func (n *session) check() bool {
	defer func() { n.recovered(recover()) }()
	n.mu.Lock()
	greeted, caller, credentials := n.greeted, n.caller, n.credentials
	n.mu.Unlock()
	if !greeted {
		return true
	}
	current, err := n.Authenticate(n.ctx, credentials)
	return n.checked(caller, current, err)
}

// checked notes the result of authenticating a caller again, and closes the session if it can no longer be held.
func (n *session) checked(caller, current *auth.Caller, err error) bool {
	current, err = n.confirmCaller(caller, current, err)
	if err == nil {
		err = n.permit(current)
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

// confirmCaller returns the caller after authenticating it again. A key that was removed is forbidden rather than
// unknown: the client must not try again. If the keys of the token's issuer are not available, the token stays valid
// until it expires.
func (n *session) confirmCaller(before, current *auth.Caller, err error) (*auth.Caller, error) {
	switch {
	case errors.Is(err, auth.ErrKeysUnavailable) && before != nil && n.newest.Load().Now().Before(before.Expires):
		return before, nil
	case errors.Is(err, auth.ErrUnauthenticated) && before != nil && before.Kind == auth.ByKey:
		return nil, problem.New(problem.Forbidden, "The API key is not valid any longer.").Because(err)
	case err != nil:
		return nil, guard.ErrInvalidCredentials(err)
	case !sameCaller(before, current):
		return nil, problem.New(problem.Forbidden, "The credentials belong to another caller now.")
	}
	return current, nil
}

// checkSockets checks the callers of all WebSockets again after a reload.
func (h *Hub) checkSockets() {
	checkSessions(h.sockets.all(), func(credentials []string) (*auth.Caller, error) {
		return h.Authenticate(context.Background(), credentials)
	})
}

// sharing are sessions with the same credentials, and their callers.
type sharing struct {
	credentials []string
	sessions    []*session
	callers     []*auth.Caller
}

// checkSessions checks the callers of sessions again. It authenticates the same credentials once, and on all
// processors: verifying the tokens of all clients takes seconds. API keys come first: many connections can have the
// same, and they are what operators remove in an emergency.
func checkSessions(sessions []*session, authenticate func(credentials []string) (*auth.Caller, error)) {
	work := make(chan *sharing)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for same := range work {
				same.check(authenticate)
			}
		})
	}
	for _, same := range groupByCredentials(sessions) {
		work <- same
	}
	close(work)
	workers.Wait()
}

// groupByCredentials returns the sessions that have said hello, those with API keys first.
func groupByCredentials(sessions []*session) []*sharing {
	groups := map[string]*sharing{}
	var all []*sharing
	for _, n := range sessions {
		n.mu.Lock()
		greeted, caller, credentials := n.greeted, n.caller, n.credentials
		n.mu.Unlock()
		if !greeted {
			continue // it is checked once it is welcome: see checkReload
		}
		key := strings.Join(credentials, "\n")
		same := groups[key]
		if same == nil {
			same = &sharing{credentials: credentials}
			groups[key], all = same, append(all, same)
		}
		same.sessions, same.callers = append(same.sessions, n), append(same.callers, caller)
	}
	slices.SortStableFunc(all, func(a, b *sharing) int { return cmp.Compare(a.isToken(), b.isToken()) })
	return all
}

// check checks the callers again. A defect in authenticating them ends their sessions alone.
func (s *sharing) check(authenticate func(credentials []string) (*auth.Caller, error)) {
	defer func() {
		if panicked := recover(); panicked != nil {
			for _, n := range s.sessions {
				n.recovered(panicked)
			}
		}
	}()
	current, err := authenticate(s.credentials)
	for i, n := range s.sessions {
		n.checkedSafely(s.callers[i], current, err)
	}
}

// isToken returns 1 for the sessions of a token, and 0 for those of a key or of anonymous callers.
func (s *sharing) isToken() int {
	if caller := s.callers[0]; caller != nil && caller.Kind == auth.ByToken {
		return 1
	}
	return 0
}

// checkedSafely is checked in a goroutine that is not the session's: a defect ends this session alone.
func (n *session) checkedSafely(caller, current *auth.Caller, err error) {
	defer func() { n.recovered(recover()) }()
	n.checked(caller, current, err)
}

// sameCaller reports whether two callers are the same key or user.
func sameCaller(a, b *auth.Caller) bool {
	if a == nil || b == nil {
		return true // the server was open, or is: what the caller can do decides
	}
	return a.Kind == b.Kind && a.Name == b.Name && a.Issuer == b.Issuer
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
