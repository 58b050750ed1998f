package api

import (
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

// authorizeAgain returns an error unless the caller of a request that stays open can still use it, by the newest
// configuration.
func (s *server) authorizeAgain(c echo.Context, permitted func(*auth.Caller) error) error {
	return s.newest.Load().gate.AuthorizeAgain(c, s.Now(), permitted)
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
	return s.Bodies.Hold(s.gate.Limiter.Key(c.Request(), guard.CallerOf(c)))
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
	caller := guard.CallerOf(c)
	v := s.newest.Load().viewerOf(caller, namespace)
	return audience.UsersFor(s.Store, v, func() error { return s.gate.Charge(c, 1) })
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
	caller := guard.CallerOf(c)
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
