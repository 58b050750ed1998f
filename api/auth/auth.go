// Package auth decides who may do what: it tells callers apart by their API key or JWT, and holds what
// each of them may do.
//
// Where things are: this file is what can be configured; key.go and pem.go read keys, pattern.go namespaces;
// guard.go identifies callers, token.go reads JWTs, sign.go makes some, recent.go remembers them, jwks.go keeps an issuer's keys;
// caller.go is what somebody may do.
package auth

import (
	"crypto"
	"crypto/sha256"
	"errors"
	"slices"
	"time"
)

// Scope is a kind of work that a caller may do.
type Scope string

// ParseScope reads the name of a scope.
func ParseScope(s string) (Scope, error) {
	if scope := Scope(s); slices.Contains(Scopes(), scope) {
		return scope, nil
	}
	return "", errors.New("unknown scope: use ping, read or admin")
}

// Scopes returns all scopes.
func Scopes() []Scope { return []Scope{Ping, Read, Admin} }

// The scopes. None of them contains another.
const (
	Ping  Scope = "ping"  // record pings and leaves
	Read  Scope = "read"  // ask for statuses, lists, counts and settings
	Admin Scope = "admin" // forget users and namespaces
)

// Config says who is known and what they may do. With the zero value nobody has to prove who they are, and
// anyone may do everything.
type Config struct {
	Keys          []Key
	Tokens        *Tokens   // nil: none are taken
	AnonymousRead []Pattern // namespaces that anyone may read
}

// Key is an API key of a service.
type Key struct {
	Name       string            // for people: in logs, and to tell whose limit it is
	Hash       [sha256.Size]byte // SHA-256 of the key, "ls_" included
	Scopes     []Scope
	Namespaces []Pattern
}

// Tokens says which JWTs are taken. Exactly one of Secret, Keys and JWKS is set; Issuer and Audience have to be.
type Tokens struct {
	Secret []byte             // HS256; at least 32 bytes
	Keys   []crypto.PublicKey // RS256, ES256 or EdDSA, by the kind of key
	JWKS   string             // the URL of a key set, for the same algorithms

	Issuer, Audience string
	Leeway           time.Duration // that clocks may differ by; 0 is none

	UserClaim       string    // who the user is; default "sub"
	NamespacesClaim string    // which namespaces: a list, or text with spaces between; default "namespaces"
	Namespaces      []Pattern // those of a token without that claim
}
