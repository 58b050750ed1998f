package auth

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Grant is the content of a token that [Tokens.Sign] makes.
type Grant struct {
	User            string
	Namespaces      []Pattern // nil omits the claim, so that those of the configuration apply
	Issued, Expires time.Time // truncated to seconds
}

// Sign returns a JWT that an [Authenticator] with these tokens accepts, for tests and trials. It signs with the secret,
// or with a private key that [ParsePrivateKey] returned. It does not check the grant.
func (t Tokens) Sign(key crypto.Signer, g Grant) (string, error) {
	method, err := t.methodFor(key)
	if err != nil {
		return "", err
	}
	claims := jwt.MapClaims{"iss": t.Issuer, "aud": t.Audience, "iat": g.Issued.Unix(), "exp": g.Expires.Unix()}
	claims[cmp.Or(t.UserClaim, defaultUserClaim)] = g.User
	if g.Namespaces != nil {
		claims[cmp.Or(t.NamespacesClaim, defaultNamespacesClaim)] = g.Namespaces
	}
	token := jwt.NewWithClaims(method, claims)
	if t.Secret != nil {
		return token.SignedString(t.Secret)
	}
	return token.SignedString(key)
}

// methodFor returns how to sign with a key, or why tokens signed with it are not accepted.
func (t Tokens) methodFor(key crypto.Signer) (jwt.SigningMethod, error) {
	switch {
	case t.Secret != nil && key != nil:
		return nil, errors.New("tokens are verified by a secret, so a private key is not used")
	case t.Secret != nil:
		return jwt.SigningMethodHS256, nil
	case key == nil:
		return nil, errors.New("tokens are verified by public keys: signing one needs the private key of one of them")
	}
	algorithm, err := algorithmOf(key.Public())
	if err != nil {
		return nil, err
	}
	public, _ := key.Public().(interface{ Equal(x crypto.PublicKey) bool }) // keys with an algorithm have Equal
	if len(t.Keys) > 0 && !slices.ContainsFunc(t.Keys, public.Equal) {
		return nil, errors.New("the private key belongs to none of the public keys that tokens are verified by")
	}
	return jwt.GetSigningMethod(algorithm), nil
}

// ParsePrivateKey parses the first private key in a PEM file: PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY. Errors do
// not repeat the content.
func ParsePrivateKey(content []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(content)
	for block != nil && block.Type == "EC PARAMETERS" { // which openssl writes before the key
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("there is no private key in PEM: -----BEGIN PRIVATE KEY-----")
	}
	key, err := privateKeyIn(block)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign: use RSA, P-256 or Ed25519", key)
	}
	if _, err := algorithmOf(signer.Public()); err != nil {
		return nil, err
	}
	return signer, nil
}

func privateKeyIn(block *pem.Block) (key any, err error) {
	if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
		return nil, errors.New("the private key is encrypted: decrypt it first, as openssl pkey does")
	}
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "PUBLIC KEY", "RSA PUBLIC KEY":
		return nil, errors.New("the file holds a public key: signing needs the private one")
	default:
		return nil, fmt.Errorf(
			"a %.40q is not a private key of a known type: use PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY",
			block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("the %s cannot be read: %w", block.Type, err)
	}
	return key, nil
}
