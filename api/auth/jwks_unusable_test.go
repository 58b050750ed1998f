package auth

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnusableKeySet: a key set without a usable key does not replace a good one, and the log says so once.
func TestUnusableKeySet(t *testing.T) {
	_ = keyPairs() // takes real time
	const short = `{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"1"}`
	for answer, why := range map[string]string{
		`{"keys":[]}`:                    "it has no keys",
		keySetOf(short):                  "bits is too short",
		keySetOf(`{}`, `5`, `{"kty":1}`): "none of its 3 keys can be used",
	} {
		i, log := newIssuer(t), &bytes.Buffer{}
		synctest.Test(t, func(t *testing.T) {
			own := tokens()
			own.Secret, own.JWKS = nil, "https://issuer.example/keys"
			g, err := New(Config{Tokens: own}, Options{Transport: i, Logger: slog.New(slog.NewTextHandler(log, nil))})
			require.NoError(t, err)
			defer g.Close()
			token := signed(t, "ES256", "kid", "1")
			_, err = g.bearer(t, token)
			require.NoError(t, err)

			i.publishes(answer)
			time.Sleep(3*refreshPause + time.Minute)
			synctest.Wait()
			require.Greater(t, i.count(), 1)
			_, err = g.bearer(t, token)
			require.NoError(t, err, answer)
			require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log)
			require.Contains(t, log.String(), why)
		})
	}
}
