package api

import (
	"cmp"
	"errors"

	"github.com/lastseen/lastseen/api/auth"
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

// visibility returns who sees the users of a namespace.
func (s *server) visibility(namespace string) Visibility {
	return cmp.Or(s.settings(namespace).Visibility, VisibleToEveryone)
}

// errVisibility is the cause of what ends because the visibility of a namespace has changed.
var errVisibility = errors.New("the visibility of the namespace has changed")

// checkVisibility returns an error if a namespace has another visibility than before.
func (s *server) checkVisibility(namespace string, before Visibility) error {
	if s.visibility(namespace) == before {
		return nil
	}
	e := newError(codeShuttingDown, "The configuration of the namespace has changed. Begin again.")
	e.cause = errVisibility
	return e
}

// viewer is as whom a caller sees the users of a namespace.
type viewer struct {
	restricted bool   // not everyone is shown
	user       string // if restricted: this user is shown, and who has them among their contacts; "" for nobody
}

// viewerOf returns as whom a caller sees a namespace. Callers without credentials see nobody where users are visible to
// contacts, although the configuration does not let them read there.
func (s *server) viewerOf(caller *auth.Caller, namespace string) viewer {
	if s.visibility(namespace) != VisibleToContacts || caller == nil || caller.Kind == auth.ByKey {
		return viewer{}
	}
	if caller.Kind == auth.ByToken {
		return viewer{restricted: true, user: caller.Name}
	}
	return viewer{restricted: true}
}
