package auth

import (
	"crypto"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// BenchmarkAuthenticate measures authentication with a key, with a new token and with a cached one.
func BenchmarkAuthenticate(b *testing.B) {
	key, hash := NewKey()
	keys := []Key{{Name: "k", Hash: hash, Scopes: Scopes(), Namespaces: []Pattern{"*"}}}
	cases := map[string]struct {
		config      Config
		credentials string
	}{
		"open":        {},
		"key":         {Config{Keys: keys}, key},
		"again HS256": {Config{Tokens: tokens()}, validToken(b, nil)},
		"first HS256": {Config{Tokens: tokens()}, validToken(b, nil)},
	}
	for algorithm, pair := range keyPairs() {
		own := tokens()
		own.Secret, own.Keys = nil, []crypto.PublicKey{pair.Public()}
		c := cases["first "+algorithm]
		c.config.Tokens, c.credentials = own, sign(b, jwt.GetSigningMethod(algorithm), pair, claimsWith(nil))
		cases["first "+algorithm], cases["again "+algorithm] = c, c
	}
	for name, c := range cases {
		b.Run(name, func(b *testing.B) {
			a, header := newAuthenticator(b, c.config), []string{"Bearer " + c.credentials}
			b.ReportAllocs()
			for b.Loop() {
				if strings.HasPrefix(name, "first ") {
					a.tokens.cache.tokens.Purge()
				}
				if _, err := a.Authenticate(b.Context(), header); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
