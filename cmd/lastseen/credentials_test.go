package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeFile writes a file of a given name and returns its path.
func writeFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

const (
	secret = "geheim geheim geheim geheim 0123"
	names  = "jwt-issuer: https://id.example.com\njwt-audience: lastseen\n"
)

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// TestSecretInsteadOfFileIsNotShown, whatever else is wrong.
func TestSecretInsteadOfFileIsNotShown(t *testing.T) {
	t.Setenv("LASTSEEN_JWT_SECRET_FILE", secret)
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
