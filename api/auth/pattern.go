package auth

import (
	"errors"
	"slices"
	"strings"

	"github.com/lastseen/lastseen"
)

// Pattern matches names of namespaces: a name, or the beginning of names with a * after it; * alone is all.
type Pattern string

// ParsePattern reads a pattern.
func ParsePattern(s string) (Pattern, error) {
	beginning, open := strings.CutSuffix(s, "*")
	switch {
	case open && beginning == "":
		return Pattern(s), nil
	case strings.Contains(beginning, "*"):
		return "", errors.New("a pattern can have one *, at its end")
	}
	if err := lastseen.CheckNamespace(beginning); err != nil {
		return "", err
	}
	return Pattern(s), nil
}

// Match reports whether the pattern matches a name.
func (p Pattern) Match(namespace string) bool {
	beginning, open := strings.CutSuffix(string(p), "*")
	if open {
		return strings.HasPrefix(namespace, beginning)
	}
	return namespace == beginning
}

// matchAny reports whether one of the patterns matches a name.
func matchAny(patterns []Pattern, namespace string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Match(namespace) })
}

// next returns a text after which, by bytes, all matches are that come after another text. It reports false if there
// can be none.
func (p Pattern) next(done string) (after string, more bool) {
	beginning, open := strings.CutSuffix(string(p), "*")
	switch {
	case done < beginning:
		return rightBefore(beginning), true
	case open && strings.HasPrefix(done, beginning):
		return done, true
	default:
		return "", false
	}
}

// rightBefore returns a text that comes before a name and all that begin with it, and after all other names that do.
func rightBefore(name string) string {
	last := len(name) - 1
	return name[:last] + string(name[last]-1) + "\x7f" // which is greater than any byte of a name
}
