package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/lastseen/lastseen"
)

// MinSecretLen is the least length of a secret for HS256, in bytes: see RFC 7518, section 3.2.
const MinSecretLen = 32

// MaxLeeway bounds the leeway: clocks that differ by more have to be set.
const MaxLeeway = 5 * time.Minute

// MaxClaimed bounds the namespaces of a token.
const MaxClaimed = 100

// The claims that hold the user and the namespaces, unless others are configured.
const (
	defaultUserClaim       = "sub"
	defaultNamespacesClaim = "namespaces"
)

// verifier tells whether a JWT is to be trusted, and whose it is.
type verifier struct {
	tokens    Tokens
	anonymous []Pattern
	parser    *jwt.Parser
	keys      []publicKey // of a file
	set       *keySet     // of an issuer
	scopes    []Scope     // of every token
	now       func() time.Time
	recent    *recent
}

func newVerifier(t Tokens, anonymous []Pattern, o Options) (*verifier, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	t.UserClaim, t.NamespacesClaim = cmp.Or(t.UserClaim, defaultUserClaim), cmp.Or(t.NamespacesClaim, defaultNamespacesClaim)
	v := &verifier{tokens: t, anonymous: anonymous, now: o.Now, recent: newRecent(maxRecentBytes), scopes: []Scope{Ping, Read}}
	algorithms := []string{jwt.SigningMethodHS256.Alg()}
	if t.Secret == nil {
		algorithms = []string{jwt.SigningMethodRS256.Alg(), jwt.SigningMethodES256.Alg(), jwt.SigningMethodEdDSA.Alg()}
	}
	for i, key := range t.Keys {
		algorithm, err := algorithmOf(key)
		if err != nil {
			return nil, fmt.Errorf("key %d for tokens: %w", i+1, err)
		}
		v.keys = append(v.keys, publicKey{algorithm: algorithm, key: key})
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(algorithms), jwt.WithExpirationRequired(), jwt.WithIssuer(t.Issuer),
		jwt.WithAudience(t.Audience), jwt.WithLeeway(t.Leeway), jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(v.now),
	}
	v.parser = jwt.NewParser(options...)
	if t.JWKS == "" {
		return v, nil
	}
	var err error
	v.set, err = newKeySet(t.JWKS, o)
	return v, err
}

func (t Tokens) check() error {
	sources := 0
	for _, there := range []bool{t.Secret != nil, len(t.Keys) > 0, t.JWKS != ""} {
		if there {
			sources++
		}
	}
	switch {
	case sources != 1:
		return errors.New("tokens are verified by a secret, by public keys or by a key set: set exactly one of them")
	case t.Secret != nil && len(t.Secret) < MinSecretLen:
		return fmt.Errorf("the secret for tokens has %d bytes: use %d or more, at random", len(t.Secret), MinSecretLen)
	case t.Issuer == "":
		return errors.New("tokens need an issuer")
	case t.Audience == "":
		return errors.New("tokens need an audience")
	case t.Leeway < 0 || t.Leeway > MaxLeeway:
		return fmt.Errorf("the leeway is not between 0 and %s", MaxLeeway)
	}
	return nil
}

// identify returns the caller whose token this is.
func (v *verifier) identify(ctx context.Context, token string) (*Caller, error) {
	hash, keys := sha256.Sum256([]byte(token)), v.set.version()
	if caller := v.recent.find(hash, v.now(), keys); caller != nil {
		return caller, nil
	}
	caller, expires, err := v.verify(ctx, token)
	if err == nil {
		v.recent.add(hash, verified{caller, expires, keys})
	}
	return caller, err
}

// verify returns the caller whose token this is, and until when it is good.
func (v *verifier) verify(ctx context.Context, token string) (*Caller, time.Time, error) {
	found := &claims{}
	_, err := v.parser.ParseWithClaims(token, found, func(t *jwt.Token) (any, error) { return v.keysFor(ctx, t) })
	switch {
	case errors.Is(err, ErrKeysUnavailable):
		return nil, time.Time{}, err
	case err != nil:
		return nil, time.Time{}, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	if _, err := found.GetIssuedAt(); err != nil { // which the parser does not look at
		return nil, time.Time{}, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	caller, err := v.caller(found.MapClaims)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	expires, err := found.GetExpirationTime()
	if err != nil || expires == nil { // which the parser has seen to
		return nil, time.Time{}, untrusted("the token does not expire")
	}
	return caller, expires.Time, nil
}

// keysFor returns what may have signed a token: keys of the kind that its algorithm is for, and no others.
func (v *verifier) keysFor(ctx context.Context, t *jwt.Token) (any, error) {
	if _, critical := t.Header["crit"]; critical {
		return nil, errors.New("the token requires an unknown extension")
	}
	if v.tokens.Secret != nil {
		return v.tokens.Secret, nil
	}
	if v.set == nil {
		return matching(v.keys, "", t.Method.Alg()), nil
	}
	id, isText := t.Header["kid"].(string)
	if _, named := t.Header["kid"]; named && !isText {
		return nil, errors.New("the ID of the token's key is not a string")
	}
	return v.set.find(ctx, id, t.Method.Alg())
}

// caller reads what a token says about its user.
func (v *verifier) caller(c jwt.MapClaims) (*Caller, error) {
	user, isText := c[v.tokens.UserClaim].(string)
	if !isText {
		return nil, fmt.Errorf("the claim %s, the user, is missing or not a string", v.tokens.UserClaim)
	}
	if err := lastseen.CheckUser(user); err != nil {
		return nil, fmt.Errorf("the claim %s: %w", v.tokens.UserClaim, err)
	}
	namespaces, err := v.namespaces(c)
	if err != nil {
		return nil, fmt.Errorf("the claim %s: %w", v.tokens.NamespacesClaim, err)
	}
	return &Caller{
		Kind: ByToken, Name: strings.Clone(user), Issuer: v.tokens.Issuer,
		scopes: v.scopes, namespaces: namespaces, anonymous: v.anonymous,
	}, nil
}

// namespaces returns those that a token is for.
func (v *verifier) namespaces(c jwt.MapClaims) ([]Pattern, error) {
	var names []string
	switch claim := c[v.tokens.NamespacesClaim].(type) {
	case nil:
		if _, there := c[v.tokens.NamespacesClaim]; there {
			return nil, errors.New("it is null")
		}
		return v.tokens.Namespaces, nil
	case string:
		names = strings.Fields(claim)
	case []any:
		for _, element := range claim {
			name, isText := element.(string)
			if !isText {
				return nil, errors.New("an item is not a string")
			}
			names = append(names, name)
		}
	default:
		return nil, errors.New("it is not a list or a string")
	}
	if len(names) > MaxClaimed {
		return nil, fmt.Errorf("it has %d names: the maximum is %d", len(names), MaxClaimed)
	}
	patterns := make([]Pattern, len(names))
	for i, name := range names {
		var err error
		if patterns[i], err = ParsePattern(strings.Clone(name)); err != nil { // a part of the claim would keep all of it
			return nil, err
		}
	}
	return patterns, nil
}
