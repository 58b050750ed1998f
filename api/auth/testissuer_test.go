package auth

import (
	"crypto"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// issuer publishes a key set, in place of the network.
type issuer struct {
	mu       sync.Mutex
	response string
	status   int
	err      error
	delay    time.Duration
	fetches  int
}

// RoundTrip responds to a request for the key set; see [http.RoundTripper].
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	i.fetches++
	response, status, err, delay := i.response, i.status, i.err, i.delay
	i.mu.Unlock()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(delay):
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(strings.NewReader(response)), Request: r,
		Header: http.Header{"Location": {"http://elsewhere.example/keys"}},
	}, nil
}

// publishes sets the response.
func (i *issuer) publishes(response string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.response, i.status, i.err, i.delay = response, http.StatusOK, nil, 0
}

// newIssuer returns an issuer that publishes the key "1", for ES256.
func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.publishes(keySetOf(entry(t, keyPairs()["ES256"].Public(), jwkset.JWKMetadataOptions{KID: "1"})))
	return i
}

// breaks makes the issuer fail, or respond after a delay.
func (i *issuer) breaks(err error, status int, delay time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status, i.err, i.delay = status, err, delay
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// entry returns a key of a set.
func entry(t testing.TB, key crypto.PublicKey, about jwkset.JWKMetadataOptions) string {
	t.Helper()
	jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{Metadata: about})
	require.NoError(t, err)
	encoded, err := json.Marshal(jwk.Marshal())
	require.NoError(t, err)
	return string(encoded)
}

func keySetOf(entries ...string) string { return `{"keys":[` + strings.Join(entries, ",") + `]}` }

// withIssuer runs a test with a fake clock and an authenticator that uses the issuer.
func withIssuer(t *testing.T, i *issuer, test func(t *testing.T, a *Authenticator)) {
	t.Helper()
	_ = keyPairs() // takes real time
	synctest.Test(t, func(t *testing.T) {
		a := newIssuerAuthenticator(t, i, nil)
		test(t, a)
		a.Close()
	})
}

func newIssuerAuthenticator(t *testing.T, i *issuer, former *Authenticator) *Authenticator {
	t.Helper()
	own := publishedTokens()
	a, err := New(Config{Tokens: own}, Options{Transport: i, Logger: slog.New(slog.DiscardHandler), Previous: former})
	require.NoError(t, err)
	return a
}

// current returns the claims of a token that is valid for long, by the clock of the bubble.
func current() jwt.MapClaims {
	return claimsWith(map[string]any{"exp": time.Now().Add(1000 * time.Hour).Unix()})
}

func signed(t *testing.T, algorithm string, header ...any) string {
	t.Helper()
	return sign(t, jwt.GetSigningMethod(algorithm), keyPairs()[algorithm], current(), header...)
}
