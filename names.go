package lastseen

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The maximum lengths of names, in bytes.
const (
	MaxNamespaceLen = 64
	MaxUserLen      = 256
)

const namespaceChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// CheckNamespace returns an error unless s is a valid name of a namespace: 1 to 64 of A–Z a–z 0–9 . _ -, without a dot
// at the start.
func CheckNamespace(s string) error {
	switch {
	case s == "":
		return errors.New("the namespace is empty: use 1 to 64 of A–Z a–z 0–9 . _ -")
	case len(s) > MaxNamespaceLen:
		return fmt.Errorf("the namespace has %d characters: at most %d are allowed", len(s), MaxNamespaceLen)
	case s[0] == '.':
		return fmt.Errorf("the namespace %s starts with a dot", quote(s))
	case strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(namespaceChars, r) }):
		return fmt.Errorf("the namespace %s has a character outside A–Z a–z 0–9 . _ -", quote(s))
	}
	return nil
}

// CheckUser returns an error unless s is a valid user ID: 1 to 256 bytes of UTF-8 without control characters, and
// neither "." nor "..", which a URL path cannot contain. IDs are compared byte for byte.
func CheckUser(s string) error {
	switch {
	case s == "":
		return errors.New("the user is empty: use 1 to 256 bytes of UTF-8")
	case len(s) > MaxUserLen:
		return fmt.Errorf("the user has %d bytes: at most %d are allowed", len(s), MaxUserLen)
	case s == "." || s == "..":
		return fmt.Errorf("the user %q cannot be part of a URL path", s)
	case isPrintableASCII(s): // the usual case; the checks below are slow
		return nil
	case !utf8.ValidString(s):
		return fmt.Errorf("the user %s is not valid UTF-8", quote(s))
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("the user %s has a control character", quote(s))
	}
	return nil
}

func isPrintableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// quote formats untrusted input for a message: quoted, escaped, and cut when long.
func quote(s string) string {
	const limit = 48
	if len(s) > limit {
		return fmt.Sprintf("%q…", s[:limit])
	}
	return fmt.Sprintf("%q", s)
}
