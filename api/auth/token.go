package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"github.com/lastseen/lastseen"
)

// MinSecretLen is the minimum length of a secret for HS256 in bytes: see RFC 7518, section 3.2.
const MinSecretLen = 32

// MaxLeeway is the maximum leeway: clocks that differ by more must be set.
const MaxLeeway = 5 * time.Minute

// MaxClaimed is the maximum number of namespaces in a token.
const MaxClaimed = 100

// The default names of the claims that hold the user and the namespaces.
const (
	defaultUserClaim       = "sub"
	defaultNamespacesClaim = "namespaces"
)

// verifier verifies JWTs.
type verifier struct {
	tokens    Tokens
	anonymous []Pattern // namespaces that everyone can read
	parser    *jwt.Parser
	keys      []publicKey // of a file
	set       *keySet     // of an issuer
	scopes    []Scope     // of every token
	now       func() time.Time
	cache     *tokenCache
}

func newVerifier(t Tokens, anonymous []Pattern, o Options) (*verifier, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	t.UserClaim = cmp.Or(t.UserClaim, defaultUserClaim)
	t.NamespacesClaim = cmp.Or(t.NamespacesClaim, defaultNamespacesClaim)
	v := &verifier{
		tokens: t, anonymous: anonymous, now: o.Now, cache: newTokenCache(maxCacheBytes), scopes: []Scope{Ping, Read},
	}
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
	v.parser = jwt.NewParser(
		jwt.WithValidMethods(algorithms), jwt.WithExpirationRequired(), jwt.WithIssuer(t.Issuer),
		jwt.WithAudience(t.Audience), jwt.WithLeeway(t.Leeway), jwt.WithStrictDecoding(), jwt.WithTimeFunc(v.now),
	)
	if t.JWKS == "" {
		return v, nil
	}
	var err error
	v.set, err = newKeySet(t.JWKS, o)
	return v, err
}

func (t Tokens) check() error {
	sources := 0
	for _, set := range []bool{t.Secret != nil, len(t.Keys) > 0, t.JWKS != ""} {
		if set {
			sources++
		}
	}
	switch {
	case sources != 1:
		return errors.New("tokens are verified by a secret, by public keys or by a key set: set exactly one of them")
	case t.Secret != nil && len(t.Secret) < MinSecretLen:
		return fmt.Errorf("the secret for tokens has %d bytes: use %d or more random bytes", len(t.Secret),
			MinSecretLen)
	case t.Issuer == "":
		return errors.New("tokens need an issuer")
	case t.Audience == "":
		return errors.New("tokens need an audience")
	case t.Leeway < 0 || t.Leeway > MaxLeeway:
		return fmt.Errorf("the leeway is not between 0 and %s", MaxLeeway)
	}
	return nil
}

// authenticate returns the user that a token belongs to.
func (v *verifier) authenticate(ctx context.Context, token string) (*Caller, error) {
	hash, keys := sha256.Sum256([]byte(token)), v.set.version()
	if caller := v.cache.find(hash, v.now(), keys); caller != nil {
		return caller, nil
	}
	caller, err := v.verify(ctx, token)
	if err == nil {
		v.cache.add(hash, verified{caller, keys})
	}
	return caller, err
}

// verify returns the user that a token belongs to.
func (v *verifier) verify(ctx context.Context, token string) (*Caller, error) {
	found, err := &claims{}, checkDepth(token)
	if err == nil {
		_, err = v.parser.ParseWithClaims(token, found, func(t *jwt.Token) (any, error) { return v.keysFor(ctx, t) })
	}
	if err == nil {
		_, err = found.GetIssuedAt() // the parser does not check it
	}
	var caller *Caller
	if err == nil {
		caller, err = v.caller(found.MapClaims)
	}
	switch {
	case errors.Is(err, ErrKeysUnavailable):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	expires, err := found.GetExpirationTime()
	if err != nil || expires == nil { // the parser has checked it
		return nil, invalid("the token does not expire")
	}
	caller.Expires = expires.Add(v.tokens.Leeway)
	return caller, nil
}

// keysFor returns the keys that can have signed a token, all of the type that its algorithm is for.
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

// caller returns the user that the claims of a token name.
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

// namespaces returns the namespaces that the claims of a token name.
func (v *verifier) namespaces(c jwt.MapClaims) ([]Pattern, error) {
	var names []string
	switch claim := c[v.tokens.NamespacesClaim].(type) {
	case nil:
		if _, found := c[v.tokens.NamespacesClaim]; found {
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
		if patterns[i], err = ParsePattern(strings.Clone(name)); err != nil { // a part would keep all of the claim
			return nil, err
		}
	}
	return patterns, nil
}

// maxDate is the last second of the year 9999. Much later dates overflow: a token for the year 292 billion would be
// valid now.
const maxDate = 253402300799

// checkDepth returns an error if the header or the claims of a token have too many levels, before they are parsed.
func checkDepth(token string) error {
	parts := strings.Split(token, ".")
	for _, part := range parts[:len(parts)-1] {
		text, _ := base64.RawURLEncoding.DecodeString(part) // the parser reports other mistakes
		if err := lastseen.CheckJSON(text, math.MaxInt); err != nil {
			return fmt.Errorf("the token has %w", err)
		}
	}
	return nil
}

// claims are the claims of a token. They are parsed strictly: a duplicate name, or one in another case, could mean one
// thing to the issuer and another one here.
type claims struct{ jwt.MapClaims }

// UnmarshalJSON parses the claims; see [encoding/json.Unmarshaler].
func (c *claims) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &c.MapClaims); err != nil {
		return err
	}
	for _, name := range []string{"exp", "nbf", "iat"} {
		if seconds, isNumber := c.MapClaims[name].(float64); isNumber && !(seconds >= 0 && seconds <= maxDate) {
			return fmt.Errorf("the claim %s is not a time in seconds between 1970 and the year 9999", name)
		}
	}
	return nil
}
