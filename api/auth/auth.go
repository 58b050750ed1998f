// Package auth authenticates callers by their API key or JWT, and holds what each caller can do.
package auth

import (
	"crypto"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

// Scope is a set of operations that a caller can be allowed.
type Scope string

// ParseScope parses the name of a scope.
func ParseScope(s string) (Scope, error) {
	if scope := Scope(s); slices.Contains(Scopes(), scope) {
		return scope, nil
	}
	if len(s) > 16 { // it may be a secret
		s = s[:3] + "…"
	}
	return "", fmt.Errorf("%q is not a scope", s)
}

// Scopes returns all scopes.
func Scopes() []Scope { return []Scope{Ping, Read, Admin} }

// The scopes. None of them contains another.
const (
	Ping  Scope = "ping"  // record pings and leaves
	Read  Scope = "read"  // read statuses, lists, counts and settings
	Admin Scope = "admin" // delete users and namespaces
)

// Config is who can do what. The zero value makes an open server: credentials are not required, and everyone can do
// everything.
type Config struct {
	Keys          []Key     // with different hashes
	Tokens        *Tokens   // nil: tokens are not accepted
	AnonymousRead []Pattern // namespaces that everyone can read
}

// Key is an API key of a service.
type Key struct {
	Name       string            // for logs and rate limits
	Hash       [sha256.Size]byte // SHA-256 of the key, "ls_" included
	Scopes     []Scope
	Namespaces []Pattern
}

// Tokens describes the JWTs that are accepted. Exactly one of Secret, Keys and JWKS is set. Issuer and Audience are
// required.
type Tokens struct {
	Secret []byte             // HS256; at least 32 bytes
	Keys   []crypto.PublicKey // RS256, ES256 or EdDSA, by the type of the key
	JWKS   string             // the URL of a key set, for the same algorithms

	Issuer, Audience string
	Leeway           time.Duration // allowed difference between clocks

	UserClaim       string    // holds the user ID; default "sub"
	NamespacesClaim string    // holds the namespaces: a list, or a text separated by spaces; default "namespaces"
	Namespaces      []Pattern // of tokens without that claim
}
