package auth

import (
	"errors"
	"slices"
	"strings"

	"github.com/lastseen/lastseen"
)

// Pattern matches names of namespaces: a name, or a prefix followed by *; * alone matches all.
type Pattern string

// ParsePattern parses a pattern.
func ParsePattern(s string) (Pattern, error) {
	prefix, open := strings.CutSuffix(s, "*")
	switch {
	case open && prefix == "":
		return Pattern(s), nil
	case strings.Contains(prefix, "*"):
		return "", errors.New("a pattern can have one *, at its end")
	}
	if err := lastseen.CheckNamespace(prefix); err != nil {
		return "", err
	}
	return Pattern(s), nil
}

// Match reports whether the pattern matches a name.
func (p Pattern) Match(namespace string) bool {
	prefix, open := strings.CutSuffix(string(p), "*")
	if open {
		return strings.HasPrefix(namespace, prefix)
	}
	return namespace == prefix
}

// MatchAny reports whether one of the patterns matches a name.
func MatchAny(patterns []Pattern, namespace string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Match(namespace) })
}

// seek returns the position at which to continue a list after a position: no names between the two match. It returns
// false if no matches can follow.
func (p Pattern) seek(position string) (next string, more bool) {
	prefix, open := strings.CutSuffix(string(p), "*")
	switch {
	case position < prefix:
		return predecessor(prefix), true
	case open && strings.HasPrefix(position, prefix):
		return position, true
	default:
		return "", false
	}
}

// predecessor returns a position right before a name and all names with that prefix.
func predecessor(name string) string {
	last := len(name) - 1
	return name[:last] + string(name[last]-1) + "\x7f" // which is greater than any byte of a name
}
