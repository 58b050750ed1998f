package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

func TestKeySet(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	var entries []string
	for algorithm, pair := range keyPairs() {
		entries = append(entries, entry(t, pair.Public(),
			jwkset.JWKMetadataOptions{KID: "key of " + algorithm, ALG: jwkset.ALG(algorithm), USE: jwkset.UseSig}))
	}
	entries = append(
		entries, `{}`, `5`, `{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"short"}`,
		`{"kty":"oct","k":"c2VjcmV0","kid":"shared","alg":"HS256"}`,
		entry(t, p384.Public(), jwkset.JWKMetadataOptions{KID: "p384"}),
		entry(t, keyPairs()["RS256"].Public(), jwkset.JWKMetadataOptions{KID: "for encryption", USE: jwkset.UseEnc}),
		entry(t, keyPairs()["RS256"].Public(), jwkset.JWKMetadataOptions{KID: "for PS256", ALG: jwkset.AlgPS256}),
	)
	i := &issuer{}
	i.publishes(keySetOf(entries...))
	withIssuer(t, i, func(t *testing.T, a *Authenticator) {
		for algorithm := range keyPairs() {
			for _, header := range [][]any{nil, {"kid", "key of " + algorithm}} {
				a.accepts(t, signed(t, algorithm, header...), "%s %v", algorithm, header)
			}
		}
		for _, id := range []any{
			"short", "shared", "p384", "for encryption", "for PS256", "key of ES256", "",
			"key of rs256", "../keys", "a'b\x00", 5, nil,
			[]string{"key of RS256"},
			strings.Repeat("k", 5000),
		} {
			if id == "" {
				continue // no ID: see above
			}
			a.refuses(t, signed(t, "RS256", "kid", id), "%.80v", id)
		}
		for name, token := range map[string]string{
			"a key in the header": signed(t, "ES256", "kid", "mine", "jwk", json.RawMessage(entries[0])),
			"an address of keys": signed(t, "ES256", "kid", "mine", "jku", "https://evil.example/keys", "x5u",
				"https://evil.example/cert"),
			"the shared secret": sign(t, jwt.SigningMethodHS256, []byte("secret"), current(), "kid", "shared"),
			"none": sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, current(), "kid",
				"key of RS256"),
		} {
			a.refuses(t, token, name)
		}
		require.Equal(t, 1, i.count(), "however many unknown IDs there are, the issuer is not asked at once again")
	})
}

// TestKeysRotate checks that a token with an unknown key makes the set be fetched, and that its request waits.
func TestKeysRotate(t *testing.T) {
	_, next, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	i := newIssuer(t)
	withIssuer(t, i, func(t *testing.T, a *Authenticator) {
		old := signed(t, "ES256", "kid", "1")
		a.accepts(t, old)
		i.publishes(keySetOf(entry(t, next.Public(), jwkset.JWKMetadataOptions{KID: "2"})))
		token := sign(t, jwt.SigningMethodEdDSA, next, current(), "kid", "2")
		a.refuses(t, token, "the set was fetched just now")
		time.Sleep(retryPause)
		i.breaks(nil, http.StatusOK, time.Second)
		a.accepts(t, token)
		a.refuses(t, old, "a key that is withdrawn is withdrawn")
		require.Equal(t, 2, i.count())
		time.Sleep(2*refreshPause + time.Minute)
		synctest.Wait()
		require.GreaterOrEqual(t, i.count(), 4, "it is fetched without being asked for, too")
	})
}

// TestIssuerDown checks that an unreachable issuer is not an error of the caller, and that known keys stay valid.
func TestIssuerDown(t *testing.T) {
	validToken := newIssuer(t).response
	for name, fault := range map[string]func(*issuer){
		"refused":       func(i *issuer) { i.breaks(errors.New("connection refused"), 0, 0) },
		"500":           func(i *issuer) { i.breaks(nil, http.StatusInternalServerError, 0) },
		"hangs":         func(i *issuer) { i.breaks(nil, http.StatusOK, time.Hour) },
		"a login page":  func(i *issuer) { i.publishes("<html>") },
		"another JSON":  func(i *issuer) { i.publishes(`{"error":"x"}`) },
		"without end":   func(i *issuer) { i.publishes(`{"keys":[],"x":"` + strings.Repeat("x", maxKeySet) + `"}`) },
		"a list":        func(i *issuer) { i.publishes(`[]`) },
		"null for keys": func(i *issuer) { i.publishes(`{"keys":null}`) },
	} {
		t.Run(name, func(t *testing.T) {
			i := &issuer{}
			fault(i)
			withIssuer(t, i, func(t *testing.T, a *Authenticator) {
				token := signed(t, "ES256", "kid", "1")
				for range 3 {
					require.NotErrorIs(t, a.fails(t, ErrKeysUnavailable, token), ErrUnauthenticated)
				}
				a.refuses(t, "ls_x", "keys have nothing to do with it")

				i.publishes(validToken)
				time.Sleep(fetchTimeout + retryPause)
				synctest.Wait()
				a.accepts(t, token, "it mends itself")

				fault(i)
				time.Sleep(2 * refreshPause)
				a.accepts(t, token, "what is known stays good")
				a.fails(t, ErrKeysUnavailable, signed(t, "ES256", "kid", "2"), "it may be a new key")
			})
		})
	}
}

// TestSlowIssuer checks that a request waits for the keys for a limited time, and not after its caller has gone.
func TestSlowIssuer(t *testing.T) {
	i := newIssuer(t)
	i.breaks(nil, http.StatusOK, 2*time.Second)
	withIssuer(t, i, func(t *testing.T, a *Authenticator) {
		token, began := signed(t, "ES256", "kid", "1"), time.Now()
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.Authenticate(gone, []string{"Bearer " + token})
		require.ErrorIs(t, err, ErrKeysUnavailable)
		require.Equal(t, time.Second, time.Since(began))
		a.accepts(t, token)
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Equal(t, 1, i.count())
	})
	i.breaks(nil, http.StatusOK, time.Hour)
	withIssuer(t, i, func(t *testing.T, a *Authenticator) {
		began := time.Now()
		a.fails(t, ErrKeysUnavailable, signed(t, "ES256", "kid", "1"))
		require.Equal(t, fetchWait, time.Since(began))
	})
}

// TestPreviousAuthenticator checks that a reload while the issuer is down keeps its keys, unless the issuer changes.
func TestPreviousAuthenticator(t *testing.T) {
	i := newIssuer(t)
	withIssuer(t, i, func(t *testing.T, former *Authenticator) {
		token := signed(t, "ES256", "kid", "1")
		_, err := former.bearer(t, token)
		require.NoError(t, err)
		i.breaks(errors.New("connection refused"), 0, 0)
		a := newIssuerAuthenticator(t, i, former)
		former.Close()
		a.accepts(t, token)
		a.Close()

		own := tokens()
		own.Secret, own.JWKS = nil, "https://other.example/keys"
		a, err = New(Config{Tokens: own}, Options{
			Transport: i, Logger: slog.New(slog.DiscardHandler),
			Previous: former,
		})
		require.NoError(t, err)
		a.fails(t, ErrKeysUnavailable, token)
		a.Close()
	})
}

// TestRedirectedKeySet checks that redirects are not followed.
func TestRedirectedKeySet(t *testing.T) {
	i := &issuer{}
	i.breaks(nil, http.StatusFound, 0)
	withIssuer(t, i, func(t *testing.T, a *Authenticator) {
		require.ErrorContains(t, a.fails(t, ErrKeysUnavailable, signed(t, "ES256", "kid", "1")), "302")
		require.Equal(t, 1, i.count())
	})
}

// TestClosedAuthenticator checks that an authenticator that was replaced still serves requests, but fetches nothing.
func TestClosedAuthenticator(t *testing.T) {
	i := newIssuer(t)
	withIssuer(t, i, func(t *testing.T, a *Authenticator) {
		token := signed(t, "ES256", "kid", "1")
		a.accepts(t, token)
		a.Close()
		time.Sleep(time.Hour)
		a.accepts(t, token)
		a.fails(t, ErrKeysUnavailable, signed(t, "ES256", "kid", "2"))
		require.Equal(t, 1, i.count())
	})
}

// TestKeySetAddressStaysOutOfTheLog checks the address because it may contain a password.
func TestKeySetAddressStaysOutOfTheLog(t *testing.T) {
	i := &issuer{}
	i.breaks(errors.New("connection refused"), 0, 0)
	synctest.Test(t, func(t *testing.T) {
		own, log := tokens(), &bytes.Buffer{}
		own.Secret, own.JWKS = nil, "https://me:secret1@issuer.example/secret2?key=secret3"
		a, err := New(Config{Tokens: own}, Options{Transport: i, Logger: slog.New(slog.NewTextHandler(log, nil))})
		require.NoError(t, err)
		defer a.Close()
		_, err = a.AuthenticateToken(t.Context(), signed(t, "ES256"))
		require.ErrorIs(t, err, ErrKeysUnavailable)
		synctest.Wait()
		require.Contains(t, log.String(), "issuer.example")
		require.Contains(t, log.String(), "connection refused")
		require.NotContains(t, log.String()+err.Error(), "secret")
	})
}

// TestUnusableKeySet checks that a key set without a usable key does not replace a valid one, and is logged once.
func TestUnusableKeySet(t *testing.T) {
	_ = keyPairs() // takes real time
	const short = `{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"1"}`
	for response, why := range map[string]string{
		`{"keys":[]}`:                    "it has no keys",
		keySetOf(short):                  "bits is too short",
		keySetOf(`{}`, `5`, `{"kty":1}`): "none of its 3 keys can be used",
	} {
		i, log := newIssuer(t), &bytes.Buffer{}
		synctest.Test(t, func(t *testing.T) {
			own := publishedTokens()
			a, err := New(Config{Tokens: own}, Options{Transport: i, Logger: slog.New(slog.NewTextHandler(log, nil))})
			require.NoError(t, err)
			defer a.Close()
			token := signed(t, "ES256", "kid", "1")
			a.accepts(t, token)

			i.publishes(response)
			time.Sleep(3*refreshPause + time.Minute)
			synctest.Wait()
			require.Greater(t, i.count(), 1)
			a.accepts(t, token, response)
			require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log)
			require.Contains(t, log.String(), why)
		})
	}
}

// FuzzKeySet checks that only usable public keys of a key set are accepted.
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
