package auth

import (
	"slices"
	"time"
)

// Kind is how a caller was authenticated.
type Kind int

// The kinds of callers.
const (
	Anonymous Kind = iota // without credentials
	ByKey                 // a service, by its API key
	ByToken               // a user, by a JWT
)

// Caller is the sender of a request, and what it can do. Callers are shared between requests and never change. On an
// open server the Caller is nil and can do everything.
type Caller struct {
	Kind   Kind
	Name   string // of the key, or of the token's user
	Issuer string // of the token

	// Expires is when the token is not accepted any longer; zero for other callers. A request that stays open must end
	// then.
	Expires time.Time

	scopes     []Scope
	namespaces []Pattern
	anonymous  []Pattern // namespaces that everyone can read
}

// Can reports whether the caller has a scope in a namespace.
func (c *Caller) Can(scope Scope, namespace string) bool {
	return c.CanItself(scope, namespace) || scope == Read && MatchAny(c.anonymous, namespace)
}

// CanItself reports whether the caller has a scope in a namespace, not counting what anyone can read.
func (c *Caller) CanItself(scope Scope, namespace string) bool {
	return c == nil || slices.Contains(c.scopes, scope) && MatchAny(c.namespaces, namespace)
}

// CanSomewhere reports whether the caller has a scope in any namespace.
func (c *Caller) CanSomewhere(scope Scope) bool {
	return c == nil || slices.Contains(c.scopes, scope) && len(c.namespaces) > 0 ||
		scope == Read && len(c.anonymous) > 0
}

// CanPing reports whether a caller with the scope ping can record pings and leaves of a user. A user can do so only for
// themselves.
func (c *Caller) CanPing(user string) bool { return !c.is(ByToken) || c.Name == user }

// CanSeeDevices reports whether the caller can see the devices of a user. This takes the caller's own scope read:
// services see those of all users, and users their own.
func (c *Caller) CanSeeDevices(namespace, user string) bool {
	return c.CanItself(Read, namespace) && c.CanPing(user)
}

// CanReadCalls reports whether the caller can read calls in a namespace. This takes the caller's own scopes read and
// ping: users who are invisible can be in calls, which only callers who can write for them may know. Services read
// those of all users, and users their own.
func (c *Caller) CanReadCalls(namespace string) bool {
	return c.CanItself(Read, namespace) && c.CanItself(Ping, namespace)
}

// CanPingMany reports whether a caller with the scope ping can record pings and leaves of many users at once.
func (c *Caller) CanPingMany() bool { return !c.is(ByToken) }

// Same reports whether two callers are the same key or user. An open server, nil, counts as both.
func (c *Caller) Same(other *Caller) bool {
	return c == nil || other == nil || c.Kind == other.Kind && c.Name == other.Name && c.Issuer == other.Issuer
}

func (c *Caller) is(kind Kind) bool { return c != nil && c.Kind == kind }

// IsAnonymous reports whether the caller sent no credentials to a server that is not open.
func (c *Caller) IsAnonymous() bool { return c.is(Anonymous) }

// IsBlind reports whether the response to a write in a namespace must not reveal what is stored, because the caller
// cannot read it. That anyone can read the namespace does not count: a key that writes for a user would otherwise see
// what the user hides. Users can always see themselves.
func (c *Caller) IsBlind(namespace string) bool { return c.is(ByKey) && !c.CanItself(Read, namespace) }

// SeekReadable returns the position at which to continue a list after a position: the caller cannot read the namespaces
// between the two. Positions are compared with names by bytes. It returns false if no readable names can follow.
func (c *Caller) SeekReadable(position string) (next string, more bool) {
	if c == nil {
		return position, true
	}
	readable := c.anonymous
	if slices.Contains(c.scopes, Read) {
		readable = slices.Concat(readable, c.namespaces)
	}
	for _, p := range readable {
		if after, ok := p.seek(position); ok && (!more || after < next) {
			next, more = after, true
		}
	}
	return next, more
}
