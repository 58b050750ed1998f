package auth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

func TestAuthenticateToken(t *testing.T) {
	a := newAuthenticator(t, Config{Tokens: tokens()})
	caller := a.accepts(t, validToken(t, nil))
	require.Equal(t, ByToken, caller.Kind)
	require.Equal(t, "alice", caller.Name)
	require.Equal(t, "https://issuer.example", caller.Issuer)
	for _, namespace := range []string{"chat", "room-1"} {
		require.True(t, caller.Can(Ping, namespace))
		require.True(t, caller.Can(Read, namespace))
		require.False(t, caller.Can(Admin, namespace))
	}
	require.False(t, caller.Can(Ping, "other"))
	require.False(t, caller.Can(Read, "other"))
	require.True(t, caller.CanPing("alice"))
	require.False(t, caller.CanPing("bob"))
	require.False(t, caller.CanPingMany())
	require.False(t, caller.IsBlind("other"))
}

// TestNamespacesOfTokens checks a list, a string, and the configured default without the claim.
func TestNamespacesOfTokens(t *testing.T) {
	configured := tokens()
	configured.Namespaces = []Pattern{"lobby"}
	for _, c := range []struct {
		tokens *Tokens
		claim  any
		want   []Pattern
	}{
		{tokens(), nil, nil},
		{configured, nil, []Pattern{"lobby"}},
		{configured, []string{}, []Pattern{}},
		{configured, "", []Pattern{}},
		{configured, "chat", []Pattern{"chat"}},
		{configured, " chat  room-* ", []Pattern{"chat", "room-*"}},
		{configured, []string{"*"}, []Pattern{"*"}},
	} {
		caller, err := newAuthenticator(t, Config{Tokens: c.tokens}).bearer(t,
			validToken(t, map[string]any{"namespaces": c.claim}))
		require.NoError(t, err)
		require.Equal(t, c.want, caller.namespaces)
		require.Equal(t, len(c.want) > 0, caller.CanSomewhere(Read))
	}
}

func TestConfiguredClaimNames(t *testing.T) {
	named := tokens()
	named.UserClaim, named.NamespacesClaim = "https://example.com/user", "rooms"
	a := newAuthenticator(t, Config{Tokens: named})
	caller := a.accepts(t, validToken(t, map[string]any{"https://example.com/user": "bob", "rooms": "r1"}))
	require.Equal(t, "bob", caller.Name)
	require.True(t, caller.Can(Read, "r1"))
	require.False(t, caller.Can(Read, "chat"))
	a.refuses(t, validToken(t, nil), "sub is not the claim")
}

// raw makes a token of texts that no library would make.
func raw(t *testing.T, header, payload string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(header)) + "." + encode([]byte(payload))
	signature, err := jwt.SigningMethodHS256.Sign(text, secret)
	require.NoError(t, err)
	return text + "." + encode(signature)
}

// TestMalformedTokens checks that anything that is not exactly a JWT of the issuer is refused, even with a valid
// signature.
func TestMalformedTokens(t *testing.T) {
	a := newAuthenticator(t, Config{Tokens: tokens()})
	payload, err := json.Marshal(claimsWith(nil))
	require.NoError(t, err)
	const header = `{"alg":"HS256","typ":"JWT"}`
	token := raw(t, header, string(payload))
	a.accepts(t, token)
	nested := func(levels int) string {
		return `{"alg":"HS256","x":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + "}"
	}
	a.accepts(t, raw(t, nested(lastseen.MaxDepth), string(payload)))
	parts := strings.Split(token, ".")
	twice := func(member string) string { return strings.Replace(string(payload), "{", "{"+member+",", 1) }
	for name, bad := range map[string]string{
		"nothing": "", "dots": "..", "one dot": ".", "text": "token", "two parts": parts[0] + "." + parts[1],
		"four parts":   token + ".x",
		"no signature": parts[0] + "." + parts[1] + ".", "short signature": token[:len(token)-4],
		"padding": token + "=", "space inside": parts[0] + ". " + parts[1] + "." + parts[2],
		"bits after the end": token[:len(token)-1] + string(token[len(token)-1]+1),
		"other payload": parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(twice(`"x":1`))) + "." +
			parts[2],
		"no JSON": raw(t, header, "x"), "null": raw(t, header, "null"), "list": raw(t, header, "[]"),
		"text in JSON": raw(t, header, `"alice"`), "empty": raw(t, header, "{}"),
		"the user twice": raw(t, header, twice(`"sub":"bob"`)),
		"the end twice":  raw(t, header, twice(`"exp":9999999999`)),
		"two values":     raw(t, header, string(payload)+"{}"),
		"wrong case":     raw(t, header, strings.Replace(string(payload), `"exp"`, `"EXP"`, 1)),
		"invalid UTF-8":  raw(t, header, strings.Replace(string(payload), "alice", "al\xffice", 1)),
		"lone surrogate": raw(t, header, strings.Replace(string(payload), "alice", `al\ud800ice`, 1)),
		"header null":    raw(t, "null", string(payload)), "header list": raw(t, "[]", string(payload)),
		"no algorithm": raw(t, `{}`, string(payload)), "algorithm 1": raw(t, `{"alg":1}`, string(payload)),
		"algorithm hs256":   raw(t, `{"alg":"hs256"}`, string(payload)),
		"algorithm unknown": raw(t, `{"alg":"HS257"}`, string(payload)),
		"critical":          raw(t, `{"alg":"HS256","crit":["b64"],"b64":false}`, string(payload)),
		"critical, empty":   raw(t, `{"alg":"HS256","crit":[]}`, string(payload)),
		"huge":              raw(t, header, twice(`"x":"`+strings.Repeat("x", 10_000)+`"`)),
		"enormous":          strings.Repeat("a.", 1_000_000), "deep": raw(t, header, strings.Repeat("[", 4000)),
		"deep header": raw(t, nested(lastseen.MaxDepth+1), string(payload)),
		"a key":       "ls_" + token,
	} {
		_, err := a.AuthenticateToken(t.Context(), bad)
		require.ErrorIs(t, err, ErrUnauthenticated, name)
		require.Less(t, len(err.Error()), 300, "%s: a log is not for whatever somebody sends", name)
	}
}

// TestKeyConfusion checks that the kind of the configured key decides the algorithm, not the token.
func TestKeyConfusion(t *testing.T) {
	pairs := keyPairs()
	methods := map[string]jwt.SigningMethod{
		"RS256": jwt.SigningMethodRS256, "ES256": jwt.SigningMethodES256,
		"EdDSA": jwt.SigningMethodEdDSA,
	}
	for algorithm, pair := range pairs {
		own := tokens()
		own.Secret, own.Keys = nil, []crypto.PublicKey{pair.Public()}
		a := newAuthenticator(t, Config{Tokens: own})
		a.accepts(t, sign(t, methods[algorithm], pair, claimsWith(nil), "kid", "any"), algorithm)

		content := pemOf(t, pair)
		der := content[strings.Index(string(content), "\n")+1:]
		bad := map[string]string{
			"none": sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType,
				claimsWith(nil)),
			"HMAC with the PEM":    sign(t, jwt.SigningMethodHS256, content, claimsWith(nil)),
			"HMAC, PEM trimmed":    sign(t, jwt.SigningMethodHS256, content[:len(content)-1], claimsWith(nil)),
			"HMAC with the base64": sign(t, jwt.SigningMethodHS256, der, claimsWith(nil)),
			"HMAC with nothing":    sign(t, jwt.SigningMethodHS256, []byte{}, claimsWith(nil)),
			"HMAC of another size": sign(t, jwt.SigningMethodHS512, content, claimsWith(nil)),
			"the right signature, named": strings.Replace(sign(t, methods[algorithm], pair, claimsWith(nil)), ".",
				".e30", 1),
		}
		if algorithm == "RS256" {
			bad["RS512"] = sign(t, jwt.SigningMethodRS512, pair, claimsWith(nil))
			bad["PS256"] = sign(t, jwt.SigningMethodPS256, pair, claimsWith(nil))
		}
		for other, key := range pairs {
			if other != algorithm {
				bad["a key of another kind, "+other] = sign(t, methods[other], key, claimsWith(nil))
			}
		}
		for name, token := range bad {
			a.refuses(t, token, "%s: %s", algorithm, name)
		}
	}
	a := newAuthenticator(t, Config{Tokens: tokens()})
	for name, token := range map[string]string{
		"none":           sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claimsWith(nil)),
		"HS512":          sign(t, jwt.SigningMethodHS512, secret, claimsWith(nil)),
		"RS256":          sign(t, jwt.SigningMethodRS256, pairs["RS256"], claimsWith(nil)),
		"another secret": sign(t, jwt.SigningMethodHS256, secret[1:], claimsWith(nil)),
	} {
		a.refuses(t, token, name)
	}
}

// TestTokenCache checks that a cached token expires, and is refused when its key is removed.
func TestTokenCache(t *testing.T) {
	clock := now
	own := tokens()
	own.Leeway = 0
	a, err := New(Config{Tokens: own}, Options{Now: func() time.Time { return clock }})
	require.NoError(t, err)
	token := validToken(t, nil)
	first := a.accepts(t, token)
	again := a.accepts(t, token)
	require.Same(t, first, again)
	require.Equal(t, 1, a.tokens.cache.tokens.Len())
	a.refuses(t, token[:len(token)-5])
	require.Equal(t, 1, a.tokens.cache.tokens.Len(), "what is no good takes no room")

	clock = now.Add(time.Hour - time.Second)
	a.accepts(t, token)
	clock = now.Add(time.Hour)
	a.refuses(t, token)
}

// TestSeveralKeys checks that two keys are valid while an issuer changes its key.
func TestSeveralKeys(t *testing.T) {
	_, second, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	_, third, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	own := tokens()
	own.Secret = nil
	for _, name := range slices.Sorted(maps.Keys(keyPairs())) {
		own.Keys = append(own.Keys, keyPairs()[name].Public())
	}
	own.Keys = append(own.Keys, second.Public())
	a := newAuthenticator(t, Config{Tokens: own})
	for _, key := range []crypto.Signer{keyPairs()["EdDSA"], second} {
		a.accepts(t, sign(t, jwt.SigningMethodEdDSA, key, claimsWith(nil)))
	}
	a.refuses(t, sign(t, jwt.SigningMethodEdDSA, third, claimsWith(nil)))
}

// FuzzAuthenticate checks that a header is refused or holds valid credentials.
func FuzzAuthenticate(f *testing.F) {
	key := "ls_" + strings.Repeat("k", 43)
	service := Key{Name: "k", Hash: sha256.Sum256([]byte(key)), Scopes: []Scope{Ping}, Namespaces: []Pattern{"*"}}
	a := newAuthenticator(f, Config{Keys: []Key{service}, Tokens: tokens()})
	token := validToken(f, nil)
	for _, seed := range []string{
		"Bearer " + key, "Bearer " + token, "bearer x.y.z",
		"Bearer " + strings.Replace(token, ".", "..", 1), "Basic YTpi", "Bearer eyJhbGciOiJub25lIn0.e30.",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		caller, err := a.Authenticate(t.Context(), []string{header})
		if err != nil {
			require.ErrorIs(t, err, ErrUnauthenticated)
			require.Nil(t, caller)
			return
		}
		require.True(t, strings.HasSuffix(header, key) || strings.HasSuffix(header, token), "%q is let in", header)
	})
}
