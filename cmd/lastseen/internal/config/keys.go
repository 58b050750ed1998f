package config

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/api/auth"
)

// apiKey is an API key of the file, and its place.
type apiKey struct {
	auth.Key
	source string
}

const takesKeyName = "1 to 64 of A–Z a–z 0–9 . _ -, not starting with a dot"

// validKeyName matches the valid names of an API key.
var validKeyName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`)

// CheckKeyName returns an error if an API key cannot have a name.
func CheckKeyName(name string) error {
	if !validKeyName.MatchString(name) {
		return fmt.Errorf("%s is not a valid key name; use %s", displayName(name), takesKeyName)
	}
	return nil
}

// apiKey reads an API key. All fields are required: a default could grant more than intended.
func (r *fileReader) apiKey(name, value *yaml.Node) {
	if err := CheckKeyName(name.Value); err != nil {
		r.addf(name, "%s: %v", keysSection, err)
	}
	k := apiKey{Key: auth.Key{Name: name.Value}, source: r.at(name)}
	r.fields(keysSection, name, value, keyFields(), len(keyFields()), &k.Key)
	r.config.keys[name.Value] = k
}

// keyNames returns the names of the API keys in order.
func (c *Config) keyNames() []string { return slices.Sorted(maps.Keys(c.keys)) }

// authKeys returns the API keys in the order of their names, and reports those with the same hash.
func (c *Config) authKeys(e *Error) (keys []auth.Key) {
	first := map[[sha256.Size]byte]string{{}: ""} // what is not a hash is already reported
	for _, name := range c.keyNames() {
		k := c.keys[name]
		keys = append(keys, k.Key)
		switch other, duplicate := first[k.Hash]; {
		case !duplicate:
			first[k.Hash] = name
		case other != "":
			e.Addf("%s: %s.%s has the hash of %s.%s (%s): each key needs its own hash",
				k.source, keysSection, name, keysSection, other, c.keys[other].source)
		}
	}
	return keys
}

// PrintKey writes an API key as it stands in a configuration file, below keys. A hash does not reveal its key.
func PrintKey(w io.Writer, k auth.Key, comment string) {
	fmt.Fprintf(w, "  %s:%s\n    %s\n", quoted(k.Name, true), comment, strings.Join(keyLines(k), "\n    "))
}

// keyLines returns the fields of an API key in YAML, one in each line.
func keyLines(k auth.Key) []string {
	text, _ := yaml.Marshal(struct { // only text in it, so without errors
		Hash       string
		Scopes     []auth.Scope   `yaml:",flow"`
		Namespaces []auth.Pattern `yaml:",flow"`
	}{auth.FormatKeyHash(k.Hash), k.Scopes, k.Namespaces})
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
