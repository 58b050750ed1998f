package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// KeyPrefix is the prefix of every API key. Scanners for leaked secrets also find keys by it.
const KeyPrefix = "ls_"

// hashPrefix is the prefix of a formatted hash.
const hashPrefix = "sha256:"

// NewKey returns a new API key of 256 random bits, and its hash. Only the hash has to be stored.
func NewKey() (key string, hash [sha256.Size]byte) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	key = KeyPrefix + base64.RawURLEncoding.EncodeToString(random)
	return key, sha256.Sum256([]byte(key))
}

// FormatKeyHash formats the hash of a key for a configuration file: sha256: and 64 hexadecimal digits.
func FormatKeyHash(hash [sha256.Size]byte) string { return hashPrefix + hex.EncodeToString(hash[:]) }

// ParseKeyHash parses the format of [FormatKeyHash]. Errors do not repeat the text, which can be a key by mistake.
func ParseKeyHash(s string) (hash [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	raw, err := hex.DecodeString(digits)
	switch {
	case strings.HasPrefix(s, KeyPrefix):
		return hash, errors.New("this is a key, not its hash (sha256:…): replace the key, because it is no longer " +
			"secret")
	case !ok:
		return hash, errors.New("sha256: is missing at the beginning")
	case len(digits) != hex.EncodedLen(sha256.Size):
		return hash, fmt.Errorf("it has %d characters after sha256:, and not 64", len(digits))
	case err != nil:
		return hash, errors.New("it has a character after sha256: that is not a hexadecimal digit")
	}
	return [sha256.Size]byte(raw), nil
}
