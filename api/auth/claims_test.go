package auth

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// FuzzClaims checks that an accepted token has a user and an expiry that every JSON parser reads alike.
func FuzzClaims(f *testing.F) {
	payload, err := json.Marshal(claimsWith(nil))
	require.NoError(f, err)
	f.Add(payload)
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"exp":1e400}`,
		`{"aud":["lastseen"],"exp":99999999999,"nbf":0,"iss":"https://issuer.example","sub":"a","sub":"b"}`,
		`{"namespaces":"a b*"}`,
	} {
		f.Add([]byte(seed))
	}
	a := newAuthenticator(f, Config{Tokens: tokens()})
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		signed := header + "." + base64.RawURLEncoding.EncodeToString(payload)
		signature, err := jwt.SigningMethodHS256.Sign(signed, secret)
		require.NoError(t, err)
		caller, err := a.bearer(t, signed+"."+base64.RawURLEncoding.EncodeToString(signature))
		if err != nil {
			require.ErrorIs(t, err, ErrUnauthenticated)
			return
		}
		require.NoError(t, lastseen.CheckUser(caller.Name))
		require.False(t, caller.Can(Admin, "chat"))
		var read map[string]any
		require.NoError(t, json.Unmarshal(payload, &read))
		require.Equal(t, caller.Name, read["sub"])
		require.Equal(t, caller.Issuer, read["iss"])
		end, isNumber := read["exp"].(float64)
		require.True(t, isNumber)
		require.GreaterOrEqual(t, end+tokens().Leeway.Seconds(), float64(now.Unix()))
	})
}

// TestBadClaims checks that a correctly signed token with invalid claims is refused.
func TestBadClaims(t *testing.T) {
	a := newAuthenticator(t, Config{Tokens: tokens()})
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	many := strings.Repeat("chat ", 101)
	for _, changes := range []map[string]any{
		{"iss": nil},
		{"iss": ""},
		{"iss": "https://issuer.example/"},
		{"iss": "HTTPS://issuer.example"},
		{"iss": 1},
		{"iss": []string{"https://issuer.example"}},
		{"aud": nil},
		{"aud": ""},
		{"aud": "other"},
		{"aud": []string{}},
		{"aud": []string{"other", "lastseen2"}},
		{"aud": 5},
		{"aud": []any{1, "lastseen"}},
		{"exp": nil},
		{"exp": at(-time.Hour)},
		{"exp": at(-30 * time.Second)},
		{"exp": "soon"},
		{"exp": fmt.Sprint(at(time.Hour))},
		{"exp": 0},
		{"exp": true},
		{"exp": -1},
		{"nbf": at(time.Hour)},
		{"nbf": at(31 * time.Second)},
		{"nbf": "soon"},
		{"nbf": -1},
		{"nbf": 9.3e18}, // seconds: the year 292 billion, as the parser's library reads it
		{"nbf": 1e19},   // beyond 64 bits
		{"nbf": 1.5e300},
		{"nbf": at(0) * 1000}, // milliseconds
		{"exp": 9.3e18},
		{"exp": 1e19},
		{"exp": 253402300800}, // the year 10000
		{"exp": at(time.Hour) * 1000},
		{"iat": "soon"},
		{"iat": -1},
		{"iat": 1e19},
		{"sub": nil},
		{"sub": ""},
		{"sub": "."},
		{"sub": 7},
		{"sub": []string{"alice"}},
		{"sub": "a\x00"},
		{"sub": strings.Repeat("x", 257)},
		{"sub": map[string]any{}},
		{"namespaces": 1},
		{"namespaces": true},
		{"namespaces": []any{"chat", 1}},
		{"namespaces": []any{nil}},
		{"namespaces": "ch*t"},
		{"namespaces": []string{""}},
		{"namespaces": []string{"chat room"}},
		{"namespaces": map[string]any{"chat": true}},
		{"namespaces": many},
		{"extra": json.RawMessage(strings.Repeat("[", 32) + strings.Repeat("]", 32))}, // and the object of the claims
	} {
		a.refuses(t, validToken(t, changes), "%.100v", changes)
	}
	for _, changes := range []map[string]any{
		{"exp": at(-29 * time.Second)},
		{"nbf": at(30 * time.Second)},
		{"aud": []string{"other", "lastseen"}},
		{"iat": at(time.Hour)},
		{"nbf": 0, "iat": 0},
		{"exp": 253402300799},
		{"exp": float64(at(time.Hour)) + 0.5},
		{"sub": "ü/ " + strings.Repeat("x", 250)},
		{"extra": json.RawMessage(strings.Repeat("[", 31) + strings.Repeat("]", 31))},
		{"extra": strings.Repeat("[", 33)},
	} {
		a.accepts(t, validToken(t, changes), "%.100v", changes)
	}
}
