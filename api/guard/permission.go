package guard

import (
	"errors"
	"fmt"
	"time"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
)

// Permission is what a route requires of its caller. It is checked before the query is parsed or the body is read.
type Permission int

// The permissions. A scope is required for the namespace in the path.
const (
	None           Permission = iota // a route without a permission is a mistake
	Public                           // credentials and parameters are ignored: probes may add some
	PingSelf                         // ping; with a token only for the token's user
	LeaveSelf                        // the same, and the token can be in the body
	PingBulk                         // ping; not with a token
	WriteUser                        // ping; with a token only for the token's user
	ReadUser                         // the same, and the caller's own read
	Read                             // read
	ReadDevices                      // read, and the devices of the user can be seen
	ActInCall                        // ping; with a token only for its user, whom the body names
	EndCall                          // the same, and the token can be in the body
	ReadCall                         // the caller's own read, and ping; with a token only calls of its user
	ListNamespaces                   // read, in any namespace; the response omits the others
	Admin                            // admin; in all namespaces if the path has none
	Greeting                         // checked by the first frame of the WebSocket
)

// Scope returns the scope that a caller needs.
func (p Permission) Scope() auth.Scope {
	switch p {
	case PingSelf, LeaveSelf, PingBulk, WriteUser, ReadUser, ActInCall, EndCall, Greeting:
		return auth.Ping
	case Read, ReadDevices, ReadCall, ListNamespaces:
		return auth.Read
	default:
		return auth.Admin
	}
}

// Check returns an error unless a caller has a permission in a namespace, for one user if the permission is about one.
func (p Permission) Check(namespace, user string, caller *auth.Caller) error {
	scope := p.Scope()
	allowed := caller.Can(scope, namespace) || p == ListNamespaces && caller.CanSomewhere(scope)
	if p == ReadCall { // what anyone can read does not include what users hide or say to each other
		allowed = caller.CanItself(scope, namespace)
	}
	switch {
	case !allowed && caller.IsAnonymous():
		return ErrNoCredentials()
	case !allowed && p == ListNamespaces:
		return ErrForbidden(scope, fmt.Sprintf("This needs the scope %s.", scope))
	case !allowed && namespace == "": // as a name, which only the pattern * matches
		return ErrForbidden(scope, fmt.Sprintf("This needs the scope %s in all namespaces.", scope))
	case !allowed:
		return ErrForbidden(scope, fmt.Sprintf("This needs the scope %s in this namespace.", scope))
	case p == PingBulk && !caller.CanPingMany():
		return ErrForbidden(scope, "A token speaks for one user; this needs an API key with the scope ping.")
	case p.isOfUser() && !caller.CanPing(user):
		return ErrForbidden(scope, "A token speaks for its own user only.")
	case p == ReadCall && !caller.CanReadCalls(namespace):
		return ErrForbidden(auth.Ping, "This also needs the scope ping in this namespace.")
	case p == ReadUser && !caller.CanItself(auth.Read, namespace):
		return ErrForbidden(auth.Read, "This also needs the scope read in this namespace.")
	}
	return nil
}

// isOfBeacons reports whether the token can be in the body.
func (p Permission) isOfBeacons() bool { return p == LeaveSelf || p == EndCall }

// isOfUser reports whether a token has the permission for its own user only.
func (p Permission) isOfUser() bool {
	return p == PingSelf || p == LeaveSelf || p == WriteUser || p == ReadUser
}

// errChallenge returns an error with the header WWW-Authenticate and its parameters: see RFC 6750.
func errChallenge(c problem.Code, detail, params string) *problem.Error {
	challenge := map[string]string{"WWW-Authenticate": `Bearer realm="lastseen"` + params}
	return &problem.Error{Code: c, Detail: detail, Header: challenge}
}

// ErrNoCredentials is the error of a request without credentials to a route that requires some.
func ErrNoCredentials() error {
	return errChallenge(problem.Unauthenticated, "Send an API key or a token in the header Authorization: Bearer.", "")
}

// Confirm returns the caller of a connection or a request that stays open, after authenticating it again with a result,
// at a time. If the keys of its issuer are not available, a token stays valid until it expires.
func Confirm(before, current *auth.Caller, err error, now time.Time) (*auth.Caller, error) {
	switch {
	case errors.Is(err, auth.ErrKeysUnavailable) && before != nil && now.Before(before.Expires):
		return before, nil
	case err != nil:
		return nil, ErrInvalidCredentials(err)
	default:
		return current, nil
	}
}

// ErrInvalidCredentials is the error of a request that cannot be authenticated. Only the log has the reason, which
// would help someone who guesses.
func ErrInvalidCredentials(reason error) error {
	if !errors.Is(reason, auth.ErrUnauthenticated) {
		return reason
	}
	return errChallenge(problem.Unauthenticated,
		"The API key or token is invalid: it may be wrong, expired, or issued for another service.",
		`, error="invalid_token"`).Because(reason)
}

// ErrForbidden is the error of a caller without the permission. It is the same whether or not the namespace exists.
func ErrForbidden(scope auth.Scope, detail string) error {
	return errChallenge(problem.Forbidden, detail, fmt.Sprintf(`, error="insufficient_scope", scope="%s"`, scope))
}
