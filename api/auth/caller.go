package auth

import "slices"

// Kind is by what a caller is known.
type Kind int

// The kinds of callers.
const (
	Anonymous Kind = iota // without credentials
	ByKey                 // a service, by its API key
	ByToken               // a user, by a JWT
)

// Caller is who sent a request, and what they may do. Callers are shared between requests and never change. A nil
// Caller is one of an open server, where nobody is asked and everybody may do everything.
type Caller struct {
	Kind   Kind
	Name   string // of the key, or of the token's user
	Issuer string // of the token

	scopes     []Scope
	namespaces []Pattern
	anonymous  []Pattern // what everybody may read
}

// Can reports whether the caller may do such work in a namespace.
func (c *Caller) Can(scope Scope, namespace string) bool {
	return c == nil || slices.Contains(c.scopes, scope) && matchAny(c.namespaces, namespace) ||
		scope == Read && matchAny(c.anonymous, namespace)
}

// CanSomewhere reports whether there are namespaces in which the caller may do such work.
func (c *Caller) CanSomewhere(scope Scope) bool {
	return c == nil || slices.Contains(c.scopes, scope) && len(c.namespaces) > 0 || scope == Read && len(c.anonymous) > 0
}

// CanPing reports whether the caller may say of a user that they are here or went away. A user speaks for
// themselves alone.
func (c *Caller) CanPing(user string) bool { return !c.is(ByToken) || c.Name == user }

// CanPingMany reports whether the caller may say so of many users at once.
func (c *Caller) CanPingMany() bool { return !c.is(ByToken) }

func (c *Caller) is(kind Kind) bool { return c != nil && c.Kind == kind }

// IsAnonymous reports whether the caller sent no credentials to a server that asks for them.
func (c *Caller) IsAnonymous() bool { return c.is(Anonymous) }

// IsBlind reports whether the caller may record what happens in a namespace, but not be told of it, not even by the
// answer to a ping. Users are told of themselves.
func (c *Caller) IsBlind(namespace string) bool { return c.is(ByKey) && !c.Can(Read, namespace) }

// SeekReadable returns a text after which, by bytes, the next names are that the caller may read, given that
// all up to another text are done with. It reports false when no names can follow.
func (c *Caller) SeekReadable(done string) (after string, more bool) {
	if c == nil {
		return done, true
	}
	readable := c.anonymous
	if slices.Contains(c.scopes, Read) {
		readable = slices.Concat(readable, c.namespaces)
	}
	for _, p := range readable {
		if from, ok := p.next(done); ok && (!more || from < after) {
			after, more = from, true
		}
	}
	return after, more
}
