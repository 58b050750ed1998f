package api

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/observe"
)

// authorize returns an error unless a request can use a route, by the credentials in its header. The steps are:
// authenticate the caller, charge the caller's rate limit, check the caller's permission.
func (s *server) authorize(c echo.Context, p guard.Permission) error {
	authenticator := s.authenticator.Load()
	if authenticator.Open() {
		if err := s.sources.Check(c.Request()); err != nil {
			return err
		}
	}
	if p == guard.Greeting { // the address pays for what an unknown client sends, before any of it is parsed
		return s.limiter.Charge(c.Request(), nil, 1)
	}
	caller, err := authenticator.Authenticate(c.Request().Context(), c.Request().Header[echo.HeaderAuthorization])
	if err := s.charge(c, caller, err); err != nil {
		return err
	}
	if p.IsOfBeacons() && caller.IsAnonymous() && authenticator.TakesTokens() {
		return nil // the handler sees that the caller is anonymous, and calls authorizeToken
	}
	return cmp.Or(checkPermission(c, p, caller), s.checkDevices(c, p, caller), s.checkKnown(c, p))
}

// authorizeToken returns an error unless a request without credentials in its header is authorized by the token in its
// body: a page that closes sends a beacon, which cannot have headers.
func (s *server) authorizeToken(c echo.Context, p guard.Permission, token string) error {
	if token == "" {
		return guard.ErrNoCredentials()
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
	if err := s.limiter.Charge(c.Request(), caller, 1); err != nil {
		return err
	}
	if invalid != nil {
		return guard.ErrInvalidCredentials(invalid)
	}
	return nil
}

// authorizeAgain returns an error unless the caller of a request that stays open can still use it, by the newest
// configuration. It is charged as another request only if the credentials became invalid.
func (s *server) authorizeAgain(c echo.Context, permitted func(*auth.Caller) error) error {
	newest, r := s.newest.Load(), c.Request()
	caller, err := newest.authenticator.Load().Authenticate(r.Context(), r.Header[echo.HeaderAuthorization])
	if caller, err = guard.Confirm(callerOf(c), caller, err, s.Now()); err != nil {
		return cmp.Or(newest.limiter.Charge(r, nil, 1), err)
	}
	return cmp.Or(permitted(caller), newest.checkKnown(c, guard.Read))
}

// callerKey is the key of the caller in the context of a request.
const callerKey = "caller"

// callerOf returns the caller that sent the request; nil on an open server.
func callerOf(c echo.Context) *auth.Caller {
	caller, _ := c.Get(callerKey).(*auth.Caller)
	return caller
}

// checkPermission returns an error unless a caller has a permission. It depends on nothing that is stored.
func checkPermission(c echo.Context, p guard.Permission, caller *auth.Caller) error {
	namespace, _ := request.PathParam(c, "namespace") // one that is not well encoded matches no pattern
	user, _ := request.PathParam(c, "user")
	return p.Check(namespace, user, caller)
}

// checkDevices returns an error if a caller with the scope read cannot see the devices of the user in the path, and not
// even their kinds.
func (s *server) checkDevices(c echo.Context, p guard.Permission, caller *auth.Caller) error {
	if p != guard.ReadDevices {
		return nil
	}
	namespace, _ := request.PathParam(c, "namespace")
	user, _ := request.PathParam(c, "user")
	switch {
	case caller.CanSeeDevices(namespace, user), s.settings(namespace).ShowKinds:
		return nil
	case caller.IsAnonymous():
		return guard.ErrNoCredentials()
	default:
		return guard.ErrForbidden(auth.Read, "Only API keys and the user's own token show devices in this namespace.")
	}
}

// checkKnown returns an error if the path has a namespace that this server does not serve. Deleting is not affected, so
// that an operator can remove a namespace that is not configured any longer.
func (s *server) checkKnown(c echo.Context, p guard.Permission) error {
	if p == guard.Admin || !s.RefuseUnknown || len(c.ParamValues()) == 0 {
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

// hold returns an empty hold of memory for the body of a request.
func (s *server) hold(c echo.Context) *limit.Hold {
	return s.Bodies.Hold(s.limiter.Key(c.Request(), callerOf(c)))
}

// Visibility says who sees the users of a namespace.
type Visibility string

// The visibilities.
const (
	// VisibleToEveryone means that every caller who can read the namespace sees all users. It is the default.
	VisibleToEveryone Visibility = "everyone"
	// VisibleToContacts means that a user's token sees only the user, and users who have the user among their contacts.
	// All others look as if they had never been seen. API keys see everyone.
	VisibleToContacts Visibility = "contacts"
)

// isRestricted reports whether the users of a namespace are visible to their contacts alone.
func (s *server) isRestricted(namespace string) bool {
	return s.settings(namespace).Visibility == VisibleToContacts
}

// viewerOf returns as whom a caller sees a namespace. Callers without credentials see nobody where users are visible to
// contacts, although the configuration does not let them read there.
func (s *server) viewerOf(caller *auth.Caller, namespace string) audience.Viewer {
	if !s.isRestricted(namespace) || caller == nil || caller.Kind == auth.ByKey {
		return audience.Viewer{}
	}
	if caller.Kind == auth.ByToken {
		return audience.Viewer{Restricted: true, User: caller.Name}
	}
	return audience.Viewer{Restricted: true}
}

// storeFor returns the users of a namespace as the caller of a request sees them, by the newest configuration, for this
// request and this namespace. Handlers get users from here, which a test checks, and so show a caller only users that
// the caller sees. They call it once, so that the caller's contacts are read once.
func (s *server) storeFor(c echo.Context, namespace string) audience.Users {
	caller := callerOf(c)
	v := s.newest.Load().viewerOf(caller, namespace)
	return audience.UsersFor(s.Store, v, func() error { return s.limiter.Charge(c.Request(), caller, 1) })
}

// listReader is readerFor for lists and counts. Replicas answer only first pages: if a later one were behind the page
// before it, users who did not move could be missing.
func (s *server) listReader(c echo.Context, namespace string, q request.Query) audience.Users {
	_, cursor := q.Get("cursor")
	_, offset := q.Get("offset")
	if cursor || offset {
		return s.storeFor(c, namespace)
	}
	return s.readerFor(c, namespace)
}

// readerFor returns the store from which a request looks users up in a namespace: that of [server.storeFor], or for API
// keys one whose reads a replica may answer: see docs/decisions/replicas.md.
func (s *server) readerFor(c echo.Context, namespace string) audience.Users {
	caller := callerOf(c)
	if s.replicas == nil || caller == nil || caller.Kind != auth.ByKey {
		return s.storeFor(c, namespace)
	}
	// The whole is counted, so that a call that a replica cannot answer counts once.
	reads, ok := s.replicas.FromReplica(s.uncounted, namespace)
	if !ok {
		return s.storeFor(c, namespace)
	}
	response := c.Response()
	response.Before(func() {
		if age, ok := reads.Age(); ok && response.Status < http.StatusBadRequest {
			response.Header().Set(request.AgeHeader, strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
		}
	})
	return s.counted(reads) // API keys see all users: see viewerOf
}

// counted returns a store whose calls for requests count as load while they are in progress. Requests whose bodies have
// not arrived, which anyone can make many of, do not count.
func (s *Shared) counted(to store.Store) store.Store {
	return observe.InProgress(to, s.load.Begin, s.load.End)
}
