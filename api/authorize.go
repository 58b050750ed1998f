package api

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
)

// rule says who may use a route. It is enforced before the query is parsed or the body read.
type rule int

// The rules. Where they name a scope, it is one in the namespace of the path.
const (
	unruled    rule = iota // a route without a rule is a mistake: New panics
	public                 // anybody; nobody is asked for credentials
	forOneself             // ping; with a token only for its own user
	byBeacon               // the same, and the token may be in the body: see [server.goodbye]
	forMany                // ping; not with a token
	toRead                 // read
	toList                 // read, in whatever namespace; others are left out
	toErase                // admin
)

// scope returns what a caller needs.
func (r rule) scope() auth.Scope {
	switch r {
	case forOneself, byBeacon, forMany:
		return auth.Ping
	case toRead, toList:
		return auth.Read
	default:
		return auth.Admin
	}
}

// callerKey is where the caller is kept while a request lasts.
const callerKey = "caller"

// callerOf returns who sent the request; nil on an open server.
func callerOf(c echo.Context) *auth.Caller {
	caller, _ := c.Get(callerKey).(*auth.Caller)
	return caller
}

// guard returns the guard of the moment: a reload may bring another one. It is nil on an open server.
func (s *server) guard() *auth.Authenticator {
	if s.access == nil {
		return nil
	}
	return s.access()
}

// authorize finds out who sent the request, and returns an error unless they may use the route, and now.
func (s *server) authorize(c echo.Context, r rule) error {
	guard := s.guard()
	request := c.Request()
	if guard.Open() {
		if err := s.checkSource(request); err != nil {
			return err
		}
		return cmp.Or(s.count(c, nil), s.checkKnown(c, r))
	}
	caller, err := guard.Authenticate(request.Context(), request.Header[echo.HeaderAuthorization])
	if err != nil {
		return s.unidentified(c, err)
	}
	c.Set(callerKey, caller) // also for the log, if there are too many requests
	if err := s.count(c, caller); err != nil {
		return err
	}
	if r == byBeacon && caller.IsAnonymous() && guard.TakesTokens() {
		return nil // there may be a token in the body
	}
	return cmp.Or(admit(c, r, caller), s.checkKnown(c, r))
}

// authorizeAgain checks a caller who was authorized before, with the keys and tokens that are valid now. It does not
// count as another request.
func (s *server) authorizeAgain(c echo.Context, r rule) error {
	guard := s.guard()
	if guard.Open() {
		return nil
	}
	caller, err := guard.Authenticate(c.Request().Context(), c.Request().Header[echo.HeaderAuthorization])
	if err != nil {
		return s.unidentified(c, err)
	}
	return admit(c, r, caller)
}

// authorizeToken does the same with a token from the body, for who could send no header.
func (s *server) authorizeToken(c echo.Context, r rule, token string) error {
	if token == "" {
		return anonymous()
	}
	caller, err := s.guard().AuthenticateToken(c.Request().Context(), token)
	if err != nil {
		return s.unidentified(c, err)
	}
	c.Set(callerKey, caller)
	if err := s.count(c, caller); err != nil {
		return err
	}
	return cmp.Or(admit(c, r, caller), s.checkKnown(c, r))
}

// checkKnown returns an error if the path has a namespace that this server does not serve. Erasing is not affected, so
// that an operator can remove one that is not configured any more.
func (s *server) checkKnown(c echo.Context, r rule) error {
	if r == toErase || s.known == nil || len(c.ParamValues()) == 0 {
		return nil
	}
	namespace, err := pathNamespace(c)
	if err != nil || s.known(namespace) {
		return nil //nolint:nilerr // the handler returns that error
	}
	return errorf(codeNotFound, "The namespace %q is not configured, and this server refuses unknown namespaces (unknown-namespaces: refuse). Check the name for typos.", namespace)
}

// admit returns an error unless a caller may use the route, which depends on nothing that is stored.
func admit(c echo.Context, r rule, caller *auth.Caller) error {
	namespace, _ := pathParam(c, "namespace") // which is nobody's, if it is not well encoded
	user, _ := pathParam(c, "user")
	scope := r.scope()
	switch allowed := caller.Can(scope, namespace) || r == toList && caller.CanSomewhere(scope); {
	case !allowed && caller.IsAnonymous():
		return anonymous()
	case !allowed && r == toList:
		return forbidden(scope, fmt.Sprintf("This needs the scope %s.", scope))
	case !allowed:
		return forbidden(scope, fmt.Sprintf("This needs the scope %s in this namespace.", scope))
	case r == forMany && !caller.CanPingMany():
		return forbidden(scope, "A token speaks for one user; this needs an API key with the scope ping.")
	case (r == forOneself || r == byBeacon) && !caller.CanPing(user):
		return forbidden(scope, "A token speaks for its own user only.")
	}
	return nil
}

// challenge says what credentials are asked for, in the header WWW-Authenticate: see RFC 6750.
const challenge = `Bearer realm="lastseen"`

// anonymous is the error of a request without credentials that needs some.
func anonymous() error {
	e := newError(codeUnauthenticated, "Send an API key or a token in the header Authorization: Bearer.")
	e.challenge = challenge
	return e
}

// unidentified is the error of credentials that are no good. The reason would help who tries some out, so only the
// log has it. Whoever tries some out is counted, by address; those who are known at the same address are not.
func (s *server) unidentified(c echo.Context, reason error) error {
	if err := s.count(c, nil); err != nil {
		return err
	}
	if !errors.Is(reason, auth.ErrUnauthenticated) {
		return reason
	}
	e := newError(codeUnauthenticated, "The API key or token is invalid: it may be wrong, expired, or issued for another service.")
	e.cause = reason
	e.challenge = challenge + `, error="invalid_token"`
	return e
}

// forbidden is the error of a caller who may not do this, whoever or whatever exists.
func forbidden(scope auth.Scope, detail string) error {
	e := newError(codeForbidden, detail)
	e.challenge = fmt.Sprintf(`%s, error="insufficient_scope", scope="%s"`, challenge, scope)
	return e
}
