package api

import (
	"context"
	"errors"

	"github.com/lastseen/lastseen/api/auth"
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
	current, err := n.authenticate(n.ctx, caller, credentials)
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
func (n *session) checkReload(s *server) {
	if n.newest.Load() != s {
		n.check()
	}
}

// authenticate returns the caller again. A key that was removed is forbidden rather than unknown: the client must not
// try again. If the keys of the token's issuer are not available, the token stays valid until it expires.
func (n *session) authenticate(
	ctx context.Context, before *auth.Caller, credentials []string,
) (*auth.Caller, error) {
	server := n.newest.Load()
	current, err := n.authenticator.Load().Authenticate(ctx, credentials)
	switch {
	case errors.Is(err, auth.ErrKeysUnavailable) && before != nil && server.Now().Before(before.Expires):
		return before, nil
	case errors.Is(err, auth.ErrUnauthenticated) && before != nil && before.Kind == auth.ByKey:
		e := newError(codeForbidden, "The API key is not valid any longer.")
		e.cause = err
		return nil, e
	case err != nil:
		return nil, errInvalidCredentials(err)
	case !sameCaller(before, current):
		return nil, newError(codeForbidden, "The credentials belong to another caller now.")
	}
	return current, nil
}

// sameCaller reports whether two callers are the same key or user.
func sameCaller(a, b *auth.Caller) bool {
	if a == nil || b == nil {
		return true // the server was open, or is: what the caller can do decides
	}
	return a.Kind == b.Kind && a.Name == b.Name && a.Issuer == b.Issuer
}

// permit returns an error unless a caller can do what the session does.
func (n *session) permit(caller *auth.Caller) error {
	n.mu.Lock()
	user, watches := n.user, n.following != nil
	n.mu.Unlock()
	return n.newest.Load().permitSession(n.namespace, user, watches, caller)
}

// permitSession returns an error unless a caller can hold a connection of a user, or for none, and watch.
func (s *server) permitSession(namespace, user string, watches bool, caller *auth.Caller) error {
	if user != "" {
		if err := pingSelf.check(namespace, user, caller); err != nil {
			return err
		}
	}
	if watches || user == "" {
		if err := read.check(namespace, user, caller); err != nil {
			return err
		}
	}
	return s.checkServed(namespace)
}
