package webhooks

import (
	"errors"
	"fmt"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/lastseen/lastseen"
)

const maxSecrets = 8

// Secret signs events. It does not show itself when it is printed.
type Secret struct{ signer *standardwebhooks.Webhook }

// String hides the secret.
func (Secret) String() string { return "whsec_…" }

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// ParseSecrets reads secrets: whsec_ and the base64 of 24 to 64 bytes, one a line. Empty lines and those that begin
// with # do not count. Errors do not show secrets.
func ParseSecrets(text []byte) (secrets []Secret, err error) {
	seen := map[string]bool{}
	for n, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, err := lastseen.ParseWebhookSecret(line)
		if err == nil && seen[string(key)] {
			err = errors.New("is there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: the secret %w", n+1, err)
		}
		seen[string(key)] = true
		signer, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("line %d: the secret cannot be used", n+1)
		}
		secrets = append(secrets, Secret{signer})
	}
	switch {
	case len(secrets) == 0:
		return nil, errors.New("there is no secret")
	case len(secrets) > maxSecrets:
		return nil, fmt.Errorf("there are %d secrets: at most %d are allowed", len(secrets), maxSecrets)
	}
	return secrets, nil
}

// sign returns the signatures by all secrets, for the header: the specification separates them by spaces.
func sign(secrets []Secret, id string, at time.Time, body []byte) (string, error) {
	signatures := make([]string, len(secrets))
	for k, s := range secrets {
		signature, err := s.signer.Sign(id, at, body)
		if err != nil {
			return "", err
		}
		signatures[k] = signature
	}
	return strings.Join(signatures, " "), nil
}
