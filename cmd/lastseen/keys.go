package main

import (
	"crypto/sha256"
	"errors"
	"maps"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/api/auth"
)

// keysKey is the key of a file under which API keys are.
const keysKey = "keys"

// apiKey is an API key of a configuration, and where it stands.
type apiKey struct {
	auth.Key
	origin origin
}

// The names that an API key has.
const (
	keyHash       = "hash"
	keyScopes     = "scopes"
	keyNamespaces = "namespaces"
)

// What they take.
const (
	takesKeyName    = "1 to 64 of A–Z a–z 0–9 . _ -, not starting with a dot"
	takesHash       = "sha256: and 64 hexadecimal digits, as printed by lastseen key new"
	takesScopes     = "a list of ping, read and admin, such as [ping, read]"
	takesNamespaces = `a list of namespaces, such as [chat, game-*], or ["*"] for all`
)

// validKeyName matches the names that a key can have.
var validKeyName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`)

// key returns what the file says about one API key. All it has is needed: a default would give someone more
// than was meant.
func (r *fileReader) key(key, value *yaml.Node) apiKey {
	k := apiKey{Key: auth.Key{Name: key.Value}, origin: r.at(key)}
	if !validKeyName.MatchString(key.Value) {
		r.problems.addf("%s: %s: %s is not a valid key name; use %s", r.at(key), keysKey, name(key.Value), takesKeyName)
	}
	path, seen := keysKey+"."+name(key.Value), map[string]bool{}
	r.each(value, path+".", path, func(key, value *yaml.Node) {
		seen[key.Value] = true
		r.keyPart(&k, path+".", key, value)
	})
	for _, part := range []struct{ name, takes string }{{keyHash, takesHash}, {keyScopes, takesScopes}, {keyNamespaces, takesNamespaces}} {
		if !seen[part.name] {
			r.problems.addf("%s: %s.%s is missing; use %s", r.at(key), path, part.name, part.takes)
		}
	}
	return k
}

// keyPart reads one of the things that an API key has.
func (r *fileReader) keyPart(k *apiKey, path string, key, value *yaml.Node) {
	part, value := path+key.Value, resolved(value)
	switch key.Value {
	case keyHash:
		hash, err := auth.ParseKeyHash(value.Value)
		if value.Kind != yaml.ScalarNode {
			err = errors.New("holds " + describe(value))
		}
		if err != nil {
			r.problems.addf("%s: %s: %v; use %s", r.at(value), part, err, takesHash)
		}
		k.Hash = hash
	case keyScopes:
		k.Scopes = list(r, part, takesScopes, value, auth.ParseScope)
	case keyNamespaces:
		k.Namespaces = list(r, part, takesNamespaces, value, auth.ParsePattern)
	default:
		r.problems.addf("%s: %s: unknown setting%s", r.at(key), path+name(key.Value), suggest(key.Value, []string{keyHash, keyScopes, keyNamespaces}))
	}
}

// list reads the items of a list, of which there is at least one.
func list[T any](r *fileReader, path, takes string, value *yaml.Node, parse func(string) (T, error)) (items []T) {
	if value.Kind != yaml.SequenceNode {
		r.problems.addf("%s: %s holds %s; use %s", r.at(value), path, describe(value), takes)
		return nil
	}
	if len(value.Content) == 0 {
		r.problems.addf("%s: %s is empty; use %s", r.at(value), path, takes)
	}
	for _, n := range value.Content {
		n = resolved(n)
		if n.Kind != yaml.ScalarNode || isNull(n) {
			r.problems.addf("%s: %s has %s in it; use %s", r.at(n), path, describe(n), takes)
			continue
		}
		item, err := parse(n.Value)
		if err != nil {
			r.problems.addf("%s: %s: %v; use %s", r.at(n), path, err, takes)
		}
		items = append(items, item)
	}
	return items
}

// keyNames returns the names of the API keys in order.
func (c *config) keyNames() []string { return slices.Sorted(maps.Keys(c.keys)) }

// checkKeys finds API keys that nobody can tell apart.
func (c *config) checkKeys(p *problems) {
	first := map[[sha256.Size]byte]string{}
	for _, name := range c.keyNames() {
		k := c.keys[name]
		if k.Hash == [sha256.Size]byte{} {
			continue // said already
		}
		if other, again := first[k.Hash]; again {
			p.addf("%s: %s.%s has the hash of %s.%s (%s): each key needs its own hash", k.origin, keysKey, name, keysKey, other, c.keys[other].origin)
			continue
		}
		first[k.Hash] = name
	}
}
