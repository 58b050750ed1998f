package auth

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// FuzzClaims: whatever an issuer signs, who gets in has a name and an end that everybody reads alike.
func FuzzClaims(f *testing.F) {
	payload, err := json.Marshal(claimsWith(nil))
	require.NoError(f, err)
	f.Add(payload)
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"exp":1e400}`,
		`{"aud":["lastseen"],"exp":99999999999,"nbf":0,"iss":"https://issuer.example","sub":"a","sub":"b"}`, `{"namespaces":"a b*"}`,
	} {
		f.Add([]byte(seed))
	}
	g := newGuard(f, Config{Tokens: tokens()})
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		signed := header + "." + base64.RawURLEncoding.EncodeToString(payload)
		signature, err := jwt.SigningMethodHS256.Sign(signed, secret)
		require.NoError(t, err)
		caller, err := g.bearer(t, signed+"."+base64.RawURLEncoding.EncodeToString(signature))
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

// FuzzPublicKeys: a file holds keys that tokens can be verified by, or is refused.
func FuzzPublicKeys(f *testing.F) {
	for _, key := range keyPairs() {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		require.NoError(f, err)
		f.Add(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		keys, err := ParsePublicKeys(content)
		if err != nil {
			return
		}
		require.NotEmpty(t, keys)
		for _, key := range keys {
			_, err := algorithmOf(key)
			require.NoError(t, err)
		}
	})
}

// FuzzKeySet: of what an issuer publishes only public keys that can be used are taken.
func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},{"kty":"oct","k":"AAAA"},{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`))
	f.Add([]byte(`{"keys":null}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		keys, err := parseKeySet(content)
		if err != nil {
			return
		}
		for _, key := range keys {
			algorithm, err := algorithmOf(key.key)
			require.NoError(t, err)
			require.Equal(t, algorithm, key.algorithm)
		}
	})
}

// FuzzKeyHash: what is read as a hash is written the same.
func FuzzKeyHash(f *testing.F) {
	_, hash := NewKey()
	f.Add(FormatKeyHash(hash))
	f.Add("sha256:")
	f.Add("ls_AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		hash, err := ParseKeyHash(text)
		if err != nil {
			require.NotContains(t, err.Error(), "ls_", "a key in the place of its hash is not shown")
			return
		}
		require.True(t, bytes.EqualFold([]byte(text), []byte(FormatKeyHash(hash))), text)
	})
}
