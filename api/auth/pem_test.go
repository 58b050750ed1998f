package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// pemOf encodes public keys of all kinds.
func pemOf(t testing.TB, keys ...crypto.Signer) []byte {
	t.Helper()
	var content []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		require.NoError(t, err)
		content = append(content, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return content
}

func TestParsePublicKeys(t *testing.T) {
	pairs := keyPairs()
	all := slices.Collect(maps.Values(pairs))
	keys, err := ParsePublicKeys(append([]byte("the keys of our issuer\n"), pemOf(t, all...)...))
	require.NoError(t, err)
	require.Len(t, keys, 3)

	rsaKey := pairs["RS256"].(*rsa.PrivateKey)
	pkcs1 := pem.EncodeToMemory(&pem.Block{
		Type:  "RSA PUBLIC KEY",
		Bytes: x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey),
	})
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, rsaKey.Public(), rsaKey)
	require.NoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for _, content := range [][]byte{pkcs1, certificate} {
		keys, err := ParsePublicKeys(content)
		require.NoError(t, err)
		require.Equal(t, []crypto.PublicKey{rsaKey.Public()}, keys)
	}

	private, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	long, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxRSABits), E: 65537})
	require.NoError(t, err)
	for part, content := range map[string][]byte{
		"too long":             pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: long}),
		"no public key in PEM": []byte("ssh-rsa AAAA"), "there is no": nil,
		"only public keys": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"P-256":            pemOf(t, p384), "1024 bits": pemOf(t, weak),
		"key 2":          append(pemOf(t, all[0]), pemOf(t, weak)...),
		"cannot be read": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
	} {
		_, err := ParsePublicKeys(content)
		require.ErrorContains(t, err, part)
	}
}

// FuzzPublicKeys checks that a file is refused or contains keys that can verify tokens.
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
