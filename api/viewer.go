package api

import (
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/live/audience"
)

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
