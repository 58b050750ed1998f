package access

import (
	"crypto"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// BenchmarkIdentify is what it costs to tell who a caller is.
func BenchmarkIdentify(b *testing.B) {
	key, hash := NewKey()
	keys := []Key{{Name: "k", Hash: hash, Scopes: Scopes(), Namespaces: []Pattern{"*"}}}
	cases := map[string]struct {
		config      Config
		credentials string
	}{
		"open":  {},
		"key":   {Config{Keys: keys}, key},
		"HS256": {Config{Tokens: tokens()}, good(b, nil)},
	}
	for algorithm, pair := range keyPairs() {
		own := tokens()
		own.Secret, own.Keys = nil, []crypto.PublicKey{pair.Public()}
		c := cases[algorithm]
		c.config.Tokens, c.credentials = own, sign(b, jwt.GetSigningMethod(algorithm), pair, claimsWith(nil))
		cases[algorithm] = c
	}
	for name, c := range cases {
		b.Run(name, func(b *testing.B) {
			g, header := newGuard(b, c.config), []string{"Bearer " + c.credentials}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Identify(b.Context(), header); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
