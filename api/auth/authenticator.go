package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The errors of a [Authenticator]. What they wrap says why, for a log: it is not for callers, and holds no credentials.
var (
	// ErrUnauthenticated is about credentials that are not to be trusted.
	ErrUnauthenticated = errors.New("the credentials are not to be trusted")
	// ErrKeysUnavailable is about a token of which nobody can tell whether to trust it, since its issuer's keys cannot
	// be had.
	ErrKeysUnavailable = errors.New("the keys of the issuer are not available")
)

// maxCredentials bounds what is looked at, in bytes: tokens are hardly ever longer than 2 KiB.
const maxCredentials = 8 << 10

// Options are what a [Authenticator] needs beside its configuration. All have defaults.
type Options struct {
	Logger    *slog.Logger      // default: slog.Default()
	Now       func() time.Time  // default: time.Now
	Transport http.RoundTripper // for the key set; default: http.DefaultTransport
	Former    *Authenticator    // that the new one takes the place of: a key set from the same URL stays known
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Authenticator tells callers apart. Its methods may be called concurrently. A nil Authenticator is that of an open server.
type Authenticator struct {
	keys      map[hashStart][]knownKey
	tokens    *verifier // nil: none are taken
	anonymous *Caller
}

// New returns a guard, or an error that says what is wrong with the configuration. A key set is fetched in the
// background from now on, until Close.
func New(c Config, o Options) (*Authenticator, error) {
	g := &Authenticator{anonymous: &Caller{Kind: Anonymous, anonymous: c.AnonymousRead}, keys: map[hashStart][]knownKey{}}
	names := map[string]bool{}
	for _, key := range c.Keys {
		if err := key.check(); err != nil {
			return nil, fmt.Errorf("key %q: %w", key.Name, err)
		}
		if names[key.Name] || g.find(key.Hash) != nil {
			return nil, fmt.Errorf("key %q: its name or its hash is there twice", key.Name)
		}
		names[key.Name] = true
		start := hashStart(key.Hash[:])
		g.keys[start] = append(g.keys[start], knownKey{key.Hash, &Caller{
			Kind: ByKey, Name: key.Name, scopes: key.Scopes, namespaces: key.Namespaces, anonymous: c.AnonymousRead,
		}})
	}
	if c.Tokens == nil {
		return g, nil
	}
	var err error
	g.tokens, err = newVerifier(*c.Tokens, c.AnonymousRead, o.withDefaults())
	return g, err
}

func (k Key) check() error {
	switch {
	case k.Name == "":
		return errors.New("it has no name")
	case k.Hash == [sha256.Size]byte{}:
		return errors.New("it has no hash")
	case len(k.Scopes) == 0:
		return errors.New("it has no scopes")
	case len(k.Namespaces) == 0:
		return errors.New("it has no namespaces")
	case slices.ContainsFunc(k.Scopes, func(s Scope) bool { return !slices.Contains(Scopes(), s) }):
		return errors.New("it has a scope that does not exist")
	}
	return nil
}

// Close ends what the guard does in the background.
func (g *Authenticator) Close() {
	if g != nil && g.tokens != nil && g.tokens.set != nil {
		g.tokens.set.close()
	}
}

// Open reports whether nobody has to prove who they are: neither keys nor tokens are configured.
func (g *Authenticator) Open() bool { return g == nil || len(g.keys) == 0 && g.tokens == nil }

// TakesTokens reports whether there are tokens to be trusted.
func (g *Authenticator) TakesTokens() bool { return g != nil && g.tokens != nil }

// Authenticate returns who sent the Authorization headers of a request; [ErrUnauthenticated] or
// [ErrKeysUnavailable] if that cannot be told. On an open server it is nil. It waits for the keys of an issuer, for seconds at most.
func (g *Authenticator) Authenticate(ctx context.Context, authorization []string) (*Caller, error) {
	switch {
	case g.Open():
		return nil, nil
	case len(authorization) == 0:
		return g.anonymous, nil
	case len(authorization) > 1:
		return nil, untrusted("there are several Authorization headers")
	case len(authorization[0]) > maxCredentials:
		return nil, untrusted("the credentials are too long")
	}
	scheme, credentials, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, untrusted("the scheme is not Bearer")
	}
	credentials = strings.TrimLeft(credentials, " ")
	if strings.HasPrefix(credentials, KeyPrefix) {
		return g.identifyKey(credentials)
	}
	return g.AuthenticateToken(ctx, credentials)
}

// identifyKey finds a key by its hash.
func (g *Authenticator) identifyKey(key string) (*Caller, error) {
	if caller := g.find(sha256.Sum256([]byte(key))); caller != nil {
		return caller, nil
	}
	return nil, untrusted("there is no such key")
}

// knownKey is a key that is configured.
type knownKey struct {
	hash   [sha256.Size]byte
	caller *Caller
}

// hashStart is the beginning of a hash: keys are told apart by it, and then compared.
type hashStart [4]byte

// find returns whose hash this is, nil if it is nobody's. How long it takes tells nothing about a hash but whether
// one begins like it.
func (g *Authenticator) find(hash [sha256.Size]byte) (found *Caller) {
	for _, known := range g.keys[hashStart(hash[:])] {
		if subtle.ConstantTimeCompare(known.hash[:], hash[:]) == 1 {
			found = known.caller
		}
	}
	return found
}

// AuthenticateToken returns whose JWT this is, with the errors of [Authenticator.Authenticate].
func (g *Authenticator) AuthenticateToken(ctx context.Context, token string) (*Caller, error) {
	switch {
	case !g.TakesTokens():
		return nil, untrusted("it is no key, and no tokens are configured")
	case len(token) > maxCredentials:
		return nil, untrusted("the token is too long")
	}
	return g.tokens.identify(ctx, token)
}

func untrusted(why string) error { return fmt.Errorf("%w: %s", ErrUnauthenticated, why) }
