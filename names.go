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

// UserKey names a user of a namespace, as a key of maps.
type UserKey struct{ Namespace, User string }

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

// CheckUser returns an error unless s is a valid user ID: 1 to 256 bytes that pass [CheckText], and neither "." nor
// "..", which a URL path cannot contain. IDs are compared byte for byte.
func CheckUser(s string) error {
	if err := checkUserForm(s); err != nil || isPrintableASCII(s) { // the usual case; the check below is slow
		return err
	}
	return CheckText("the user", s)
}

// CheckStoredUser returns an error unless s is a user ID that this or an earlier version could store. Earlier versions
// took IDs with line separators and bidirectional overrides. Users who have one are listed, and can be deleted.
func CheckStoredUser(s string) error {
	err := checkUserForm(s)
	if err == nil && (!utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)) {
		err = CheckText("the user", s)
	}
	return err
}

// checkUserForm checks the length of a user ID, and whether a URL path can contain it.
func checkUserForm(s string) error {
	switch {
	case s == "":
		return errors.New("the user is missing or empty: use 1 to 256 bytes of UTF-8")
	case len(s) > MaxUserLen:
		return fmt.Errorf("the user has %d bytes: at most %d are allowed", len(s), MaxUserLen)
	case s == "." || s == "..":
		return fmt.Errorf("the user %q cannot be part of a URL path", s)
	}
	return nil
}

// CheckText returns an error unless s is UTF-8 without characters that disturb the text around them: control
// characters, line separators, and characters that change the direction of that text. The error begins with what.
func CheckText(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s %s is not valid UTF-8", what, quote(s))
	}
	if i := strings.IndexFunc(s, isDisruptive); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		return fmt.Errorf("%s has the character %U: "+
			"control characters, line breaks and bidirectional overrides are not allowed", what, r)
	}
	return nil
}

// isDisruptive reports whether a character can disturb the text around it. The marks of direction (U+200E, U+200F,
// U+061C) are allowed: they have no effect on others.
func isDisruptive(r rune) bool {
	return unicode.IsControl(r) || '\u2028' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069'
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
