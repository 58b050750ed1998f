package api

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
)

// permission is what a route requires of its caller. It is checked before the query is parsed or the body is read.
type permission int

// The permissions. A scope is required for the namespace in the path.
const (
	none        permission = iota // a route without a permission is a mistake: New panics
	public                        // credentials and parameters are ignored: probes may add some
	pingSelf                      // ping; with a token only for the token's user
	leaveSelf                     // the same, and the token can be in the body: see [server.authorizeToken]
	pingBulk                      // ping; not with a token
	writeUser                     // ping; with a token only for the token's user
	readUser                      // the same, and the caller's own read
	read                          // read
	readDevices                   // read; see [server.checkDevices]
	actInCall                     // ping; with a token only for its user, whom the body names: see [partyOf]
	endCall                       // the same, and the token can be in the body: see [server.authorizeToken]
	readCall                      // the caller's own read, and ping; with a token only calls of its user
	list                          // read, in any namespace; the response omits the others
	admin                         // admin
	greeting                      // checked by the first frame of the WebSocket: see [session.hello]
)

// scope returns the scope that a caller needs.
func (p permission) scope() auth.Scope {
	switch p {
	case pingSelf, leaveSelf, pingBulk, writeUser, readUser, actInCall, endCall, greeting:
		return auth.Ping
	case read, readDevices, readCall, list:
		return auth.Read
	default:
		return auth.Admin
	}
}

// authorize returns an error unless a request can use a route, by the credentials in its header. The steps are:
// authenticate the caller, charge the caller's rate limit, check the caller's permission.
func (s *server) authorize(c echo.Context, p permission) error {
	authenticator := s.authenticator.Load()
	if authenticator.Open() {
		if err := s.sources.Check(c.Request()); err != nil {
			return err
		}
	}
	if p == greeting { // the address pays for what an unknown client sends, before any of it is parsed
		return s.checkRateLimit(c, nil, 1)
	}
	caller, err := authenticator.Authenticate(c.Request().Context(), c.Request().Header[echo.HeaderAuthorization])
	if err := s.charge(c, caller, err); err != nil {
		return err
	}
	if p.isOfBeacons() && caller.IsAnonymous() && authenticator.TakesTokens() {
		return nil // the handler sees that the caller is anonymous, and calls authorizeToken
	}
	return cmp.Or(checkPermission(c, p, caller), s.checkDevices(c, p, caller), s.checkKnown(c, p))
}

// authorizeToken returns an error unless a request without credentials in its header is authorized by the token in its
// body: a page that closes sends a beacon, which has no headers of its own.
func (s *server) authorizeToken(c echo.Context, p permission, token string) error {
	if token == "" {
		return errNoCredentials()
	}
	caller, err := s.authenticator.Load().AuthenticateToken(c.Request().Context(), token)
	if err := s.charge(c, caller, err); err != nil {
		return err
	}
	return cmp.Or(checkPermission(c, p, caller), s.checkKnown(c, p))
}

// charge charges a request to the caller's rate limit, and returns the error of invalid credentials. These are charged
// by address, so that guessing is limited and other callers at the same address are not affected.
func (s *server) charge(c echo.Context, caller *auth.Caller, invalid error) error {
	if caller != nil {
		c.Set(callerKey, caller) // also for the log, if the limit is exceeded
	}
	if err := s.checkRateLimit(c, caller, 1); err != nil {
		return err
	}
	if invalid != nil {
		return errInvalidCredentials(invalid)
	}
	return nil
}

// authenticateAgain returns a caller that was authorized before, by the keys and tokens that are valid now. It is
// charged as another request only if the credentials became invalid.
func (s *server) authenticateAgain(c echo.Context) (*auth.Caller, error) {
	caller, err := s.authenticator.Load().Authenticate(
		c.Request().Context(), c.Request().Header[echo.HeaderAuthorization])
	if err != nil {
		return nil, s.charge(c, nil, err)
	}
	return caller, nil
}

// callerKey is the key of the caller in the context of a request.
const callerKey = "caller"

// callerOf returns the caller that sent the request; nil on an open server.
func callerOf(c echo.Context) *auth.Caller {
	caller, _ := c.Get(callerKey).(*auth.Caller)
	return caller
}

// checkPermission returns an error unless a caller has a permission. It depends on nothing that is stored.
func checkPermission(c echo.Context, p permission, caller *auth.Caller) error {
	namespace, _ := request.PathParam(c, "namespace") // one that is not well encoded matches no pattern
	user, _ := request.PathParam(c, "user")
	return p.check(namespace, user, caller)
}

// check returns an error unless a caller has a permission in a namespace, for one user if the permission is about one.
func (p permission) check(namespace, user string, caller *auth.Caller) error {
	scope := p.scope()
	allowed := caller.Can(scope, namespace) || p == list && caller.CanSomewhere(scope)
	if p == readCall { // what anyone can read does not include what users hide or say to each other
		allowed = caller.CanItself(scope, namespace)
	}
	switch {
	case !allowed && caller.IsAnonymous():
		return errNoCredentials()
	case !allowed && p == list:
		return errForbidden(scope, fmt.Sprintf("This needs the scope %s.", scope))
	case !allowed:
		return errForbidden(scope, fmt.Sprintf("This needs the scope %s in this namespace.", scope))
	case p == pingBulk && !caller.CanPingMany():
		return errForbidden(scope, "A token speaks for one user; this needs an API key with the scope ping.")
	case p.isOfUser() && !caller.CanPing(user):
		return errForbidden(scope, "A token speaks for its own user only.")
	case p == readCall && !caller.CanReadCalls(namespace):
		return errForbidden(auth.Ping, "This also needs the scope ping in this namespace.")
	case p == readUser && !caller.CanItself(auth.Read, namespace):
		return errForbidden(auth.Read, "This also needs the scope read in this namespace.")
	}
	return nil
}

// isOfBeacons reports whether the token can be in the body.
func (p permission) isOfBeacons() bool { return p == leaveSelf || p == endCall }

// isOfUser reports whether a token has the permission for its own user only.
func (p permission) isOfUser() bool {
	return p == pingSelf || p == leaveSelf || p == writeUser || p == readUser
}

// checkDevices returns an error if a caller with the scope read cannot see the devices of the user in the path, and not
// even their kinds.
func (s *server) checkDevices(c echo.Context, p permission, caller *auth.Caller) error {
	if p != readDevices {
		return nil
	}
	namespace, _ := request.PathParam(c, "namespace")
	user, _ := request.PathParam(c, "user")
	switch {
	case caller.CanSeeDevices(namespace, user), s.settings(namespace).ShowKinds:
		return nil
	case caller.IsAnonymous():
		return errNoCredentials()
	default:
		return errForbidden(auth.Read, "Only API keys and the user's own token show devices in this namespace.")
	}
}

// checkKnown returns an error if the path has a namespace that this server does not serve. Deleting is not affected, so
// that an operator can remove a namespace that is not configured any longer.
func (s *server) checkKnown(c echo.Context, p permission) error {
	if p == admin || !s.RefuseUnknown || len(c.ParamValues()) == 0 {
		return nil
	}
	namespace, err := request.Namespace(c)
	if err != nil {
		return nil //nolint:nilerr // the handler returns that error
	}
	return s.checkServed(namespace)
}

// checkServed returns an error if this server does not serve a namespace.
func (s *server) checkServed(namespace string) error {
	if _, known := s.Namespaces[namespace]; known || !s.RefuseUnknown {
		return nil
	}
	return problem.Errorf(problem.NotFound, "The namespace %q is not configured, and this server refuses unknown "+
		"namespaces (unknown-namespaces: refuse). Check the name for typos.", namespace)
}

// errChallenge returns an error with the header WWW-Authenticate and its parameters: see RFC 6750.
func errChallenge(c problem.Code, detail, params string) *problem.Error {
	challenge := map[string]string{echo.HeaderWWWAuthenticate: `Bearer realm="lastseen"` + params}
	return &problem.Error{Code: c, Detail: detail, Header: challenge}
}

// errNoCredentials is the error of a request without credentials to a route that requires some.
func errNoCredentials() error {
	return errChallenge(problem.Unauthenticated, "Send an API key or a token in the header Authorization: Bearer.", "")
}

// errInvalidCredentials is the error of a request that cannot be authenticated. Only the log has the reason, which
// would help someone who guesses.
func errInvalidCredentials(reason error) error {
	if !errors.Is(reason, auth.ErrUnauthenticated) {
		return reason
	}
	return errChallenge(problem.Unauthenticated,
		"The API key or token is invalid: it may be wrong, expired, or issued for another service.",
		`, error="invalid_token"`).Because(reason)
}

// errForbidden is the error of a caller without the permission. It is the same whether or not the namespace exists.
func errForbidden(scope auth.Scope, detail string) error {
	return errChallenge(problem.Forbidden, detail, fmt.Sprintf(`, error="insufficient_scope", scope="%s"`, scope))
}
