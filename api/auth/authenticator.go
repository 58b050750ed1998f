package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// The errors of an [Authenticator]. Errors that wrap them have the reason, for the log and not for callers, and hold no
// credentials.
var (
	// ErrUnauthenticated means that the credentials are invalid.
	ErrUnauthenticated = errors.New("invalid credentials")
	// ErrKeysUnavailable means that a token cannot be verified, because the keys of its issuer cannot be fetched.
	ErrKeysUnavailable = errors.New("the keys of the issuer are not available")
)

// maxCredentials is the maximum size of credentials in bytes: tokens are rarely longer than 2 KiB.
const maxCredentials = 8 << 10

// Options are what an [Authenticator] needs in addition to its configuration. All have defaults.
type Options struct {
	Logger    *slog.Logger      // default: slog.Default()
	Now       func() time.Time  // default: time.Now
	Transport http.RoundTripper // for the key set; default: http.DefaultTransport
	Previous  *Authenticator    // its fetched keys are reused if the URL of the key set is the same
}

// Authenticator identifies callers by their credentials. Its methods may be called concurrently. An open server has a
// nil Authenticator.
type Authenticator struct {
	// keys holds the callers by the hashes of their API keys. The time of a lookup can reveal something about the
	// hashes, but not about a key: a key has 256 random bits, and its hash cannot be chosen.
	keys      map[[sha256.Size]byte]*Caller
	tokens    *verifier // nil: tokens are not accepted
	anonymous *Caller
}

// New returns an authenticator, or an error that says what is wrong with the tokens. It fetches a key set in the
// background until Close.
func New(c Config, o Options) (*Authenticator, error) {
	a := &Authenticator{
		keys: map[[sha256.Size]byte]*Caller{}, anonymous: &Caller{Kind: Anonymous, anonymous: c.AnonymousRead},
	}
	for _, key := range c.Keys {
		a.keys[key.Hash] = &Caller{
			Kind: ByKey, Name: key.Name, scopes: key.Scopes, namespaces: key.Namespaces, anonymous: c.AnonymousRead,
		}
	}
	if c.Tokens == nil {
		return a, nil
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	var err error
	a.tokens, err = newVerifier(*c.Tokens, c.AnonymousRead, o)
	return a, err
}

// Close ends background work.
func (a *Authenticator) Close() {
	if a != nil && a.tokens != nil && a.tokens.set != nil {
		a.tokens.set.close()
	}
}

// Open reports whether credentials are not required: neither keys nor tokens are configured.
func (a *Authenticator) Open() bool { return a == nil || len(a.keys) == 0 && a.tokens == nil }

// TakesTokens reports whether tokens are configured.
func (a *Authenticator) TakesTokens() bool { return a != nil && a.tokens != nil }

// Authenticate returns the caller that the Authorization headers of a request belong to; nil on an open server. The
// error is [ErrUnauthenticated] or [ErrKeysUnavailable]. It can wait some seconds for the keys of an issuer.
func (a *Authenticator) Authenticate(ctx context.Context, authorization []string) (*Caller, error) {
	switch {
	case a.Open():
		return nil, nil
	case len(authorization) == 0:
		return a.anonymous, nil
	case len(authorization) > 1:
		return nil, invalid("there are several Authorization headers")
	case len(authorization[0]) > maxCredentials:
		return nil, invalid("the credentials are too long")
	}
	scheme, credentials, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, invalid("the scheme is not Bearer")
	}
	credentials = strings.TrimLeft(credentials, " ")
	if !strings.HasPrefix(credentials, KeyPrefix) {
		return a.AuthenticateToken(ctx, credentials)
	}
	if caller := a.keys[sha256.Sum256([]byte(credentials))]; caller != nil {
		return caller, nil
	}
	return nil, invalid("no such key")
}

// AuthenticateToken returns the user that a JWT belongs to, with the errors of [Authenticator.Authenticate].
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*Caller, error) {
	switch {
	case !a.TakesTokens():
		return nil, invalid("not an API key, and tokens are not configured")
	case len(token) > maxCredentials:
		return nil, invalid("the token is too long")
	}
	return a.tokens.authenticate(ctx, token)
}

func invalid(reason string) error { return fmt.Errorf("%w: %s", ErrUnauthenticated, reason) }
