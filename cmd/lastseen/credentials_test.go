package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestSecretInsteadOfFileIsNotShown, whatever else is wrong.
func TestSecretInsteadOfFileIsNotShown(t *testing.T) {
	t.Setenv("LASTSEEN_JWT_SECRET_FILE", testserver.Secret)
	for _, args := range [][]string{
		{},
		{"--jwt-issuer", "x"},
		{"--jwt-jwks-url", "http://a"},
		{"--auth", "none"},
		{"--jwt-issuer", "x", "--jwt-audience", "y"},
		{"--listen", ":8080", "--tls-cert", "x"},
	} {
		code, stdout, stderr := execute(t, append([]string{"config"}, args...)...)
		require.Equal(t, 2, code)
		require.Contains(t, stderr, "LASTSEEN_JWT_SECRET_FILE")
		require.NotContains(t, stdout+stderr, "geheim")
	}
}
