package webhooks

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

func secretOf(size int, first byte) string {
	key := make([]byte, size)
	key[0] = first
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// TestParseSecrets: secrets are as the specification says, and errors do not show them.
func TestParseSecrets(t *testing.T) {
	t.Parallel()
	good := secretOf(32, 1)
	for text, want := range map[string]string{
		good: "", good + "\n": "", "# old\n" + secretOf(24, 2) + "\n\n" + secretOf(64, 3) + "\r\n": "",
		"":                                 "there is no secret",
		"\n# nothing":                      "there is no secret",
		strings.TrimPrefix(good, "whsec_"): "line 1: the secret does not begin with whsec_",
		good + "x":                         "line 1: the secret is not valid base64 after whsec_",
		"\n" + secretOf(23, 1):             "line 2: the secret has 23 bytes; use 24 to 64",
		secretOf(65, 1):                    "line 1: the secret has 65 bytes; use 24 to 64",
		good + "\n" + good:                 "line 2: the secret is there twice",
	} {
		secrets, err := ParseSecrets([]byte(text))
		if want == "" {
			require.NoError(t, err)
			require.NotEmpty(t, secrets)
			continue
		}
		require.EqualError(t, err, want)
		require.NotContains(t, err.Error(), good[10:])
	}
	var many strings.Builder
	for k := range maxSecrets + 1 {
		many.WriteString(secretOf(32, byte(k)) + "\n")
	}
	_, err := ParseSecrets([]byte(many.String()))
	require.EqualError(t, err, "there are 9 secrets: at most 8 are allowed")
}

// TestSecretsAreHidden: no way to print a secret shows it.
func TestSecretsAreHidden(t *testing.T) {
	t.Parallel()
	secrets, err := ParseSecrets([]byte(secretOf(32, 200)))
	require.NoError(t, err)
	for _, form := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(form, secrets), "200", form)
		require.Contains(t, fmt.Sprintf(form, secrets), "whsec_…", form)
	}
}

// TestEachSecretSigns: a receiver that knows any of the secrets verifies a request, by the specification's own library.
func TestEachSecretSigns(t *testing.T) {
	t.Parallel()
	one, two, other := secretOf(32, 1), secretOf(64, 2), secretOf(32, 3)
	secrets, err := ParseSecrets([]byte(one + "\n" + two))
	require.NoError(t, err)
	now, body := time.Now(), []byte(`{"type":"test"}`)
	signature, err := sign(secrets, "msg_1", now, body)
	require.NoError(t, err)
	require.Len(t, strings.Fields(signature), 2)
	headers := http.Header{}
	headers.Set("webhook-id", "msg_1")
	headers.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	headers.Set("webhook-signature", signature)
	for _, secret := range []string{one, two} {
		receiver, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		require.NoError(t, receiver.Verify(body, headers))
		require.Error(t, receiver.Verify([]byte(`{"type":"forged"}`), headers))
	}
	receiver, err := standardwebhooks.NewWebhook(other)
	require.NoError(t, err)
	require.Error(t, receiver.Verify(body, headers))
}
