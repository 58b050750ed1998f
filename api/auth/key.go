package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// KeyPrefix begins every API key, so that one is recognised: here, and by scanners for secrets that leaked.
const KeyPrefix = "ls_"

// hashPrefix begins the text of a key's hash.
const hashPrefix = "sha256:"

// NewKey makes an API key of 256 random bits. Only its hash has to be kept.
func NewKey() (key string, hash [sha256.Size]byte) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails, by its documentation
	key = KeyPrefix + base64.RawURLEncoding.EncodeToString(random)
	return key, sha256.Sum256([]byte(key))
}

// FormatKeyHash writes the hash of a key as a configuration holds it: sha256: and 64 hexadecimal digits.
func FormatKeyHash(hash [sha256.Size]byte) string { return hashPrefix + hex.EncodeToString(hash[:]) }

// ParseKeyHash reads what [FormatKeyHash] wrote. Errors do not repeat it, since it may be a key by mistake.
func ParseKeyHash(s string) (hash [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	switch {
	case strings.HasPrefix(s, KeyPrefix):
		return hash, errors.New("this is a key, not its hash (sha256:…): replace the key, because it is no longer secret")
	case !ok:
		return hash, errors.New("the hash has no sha256: at its beginning")
	case len(digits) != hex.EncodedLen(sha256.Size):
		return hash, errors.New("the hash is not sha256: and 64 hexadecimal digits")
	}
	if _, err := hex.Decode(hash[:], []byte(digits)); err != nil {
		return hash, errors.New("the hash is not sha256: and 64 hexadecimal digits")
	}
	return hash, nil
}
