package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// Bounds of the size of an RSA key: shorter keys are not secure, and with a key of a megabyte, which fits into a key
// set, verifying a token would take minutes.
const (
	minRSABits = 2048
	maxRSABits = 16384
)

// ParsePublicKeys parses the public keys in a PEM file, one or more: PUBLIC KEY, RSA PUBLIC KEY, or CERTIFICATE, of
// which only the key is used. Errors do not repeat the content.
func ParsePublicKeys(content []byte) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		key, err := keyIn(block)
		if err == nil {
			_, err = algorithmOf(key)
		}
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", len(keys)+1, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no public key in PEM: -----BEGIN PUBLIC KEY-----")
	}
	return keys, nil
}

func keyIn(block *pem.Block) (crypto.PublicKey, error) {
	var key crypto.PublicKey
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var certificate *x509.Certificate
		if certificate, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = certificate.PublicKey
		}
	default:
		return nil, fmt.Errorf("a %.40q is not a public key: verifying JWTs needs only public keys", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("the %s cannot be read: %w", block.Type, err)
	}
	return key, nil
}

// algorithmOf returns the one algorithm that a public key is used with, so that a token cannot choose another.
func algorithmOf(key crypto.PublicKey) (string, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		switch bits := key.N.BitLen(); {
		case bits < minRSABits:
			return "", fmt.Errorf("an RSA key of %d bits is too short: use %d or more", bits, minRSABits)
		case bits > maxRSABits:
			return "", fmt.Errorf("an RSA key of %d bits is too long: use %d or less", bits, maxRSABits)
		}
		return jwt.SigningMethodRS256.Alg(), nil
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return "", fmt.Errorf("a key on the curve %s is not accepted: use P-256, for ES256", key.Params().Name)
		}
		return jwt.SigningMethodES256.Alg(), nil
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA.Alg(), nil
	default:
		return "", fmt.Errorf("a key of type %T is not accepted: use RSA, P-256 or Ed25519", key)
	}
}
