package config

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Difference is what differs between two configurations, for people.
type Difference struct {
	Changes []string
	Refused []string // changes that cannot take effect while the service runs, and why
}

// maxSummary is how many changes a summary lists: there may be thousands of namespaces.
const maxSummary = 20

// Summary returns the changes in one line.
func (d Difference) Summary() string {
	listed := slices.Clone(d.Changes[:min(len(d.Changes), maxSummary)])
	if more := len(d.Changes) - len(listed); more > 0 {
		listed = append(listed, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(listed, "; "), "none")
}

// Compare returns what differs in the next configuration. Settings that a file cannot have stay the same while a
// process runs.
func Compare(current, next *Config) (d Difference) {
	for _, def := range Definitions() {
		if def.File && !same(def, &current.Values, &next.Values) {
			d.add(def, "", &current.Values, &next.Values)
		}
	}
	for _, name := range union(current.namespaces, next.namespaces) {
		path := namespacesSection + "." + name
		d.compareExistence(path, current.Configured(name), next.Configured(name))
		d.compareNamespace(path+".", current.Namespace(name), next.Namespace(name))
	}
	d.compareKeys(current.keys, next.keys)
	d.compareSecrets(current, next)
	if current.secured() && !next.secured() && next.Auth != AuthNone {
		d.Refused = append(d.Refused, "no "+keysSection+" and no JWTs are left, so anyone would have full access: "+
			"set auth: none to allow it")
	}
	return d
}

// union returns the keys of both maps in order.
func union[V any](a, b map[string]V) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b)))))
}

// compareExistence adds that something is added or removed.
func (d *Difference) compareExistence(path string, was, is bool) {
	if !was {
		d.Changes = append(d.Changes, path+" added")
	}
	if !is {
		d.Changes = append(d.Changes, path+" removed")
	}
}

// compareKeys adds what differs in the API keys.
func (d *Difference) compareKeys(current, next map[string]apiKey) {
	for _, name := range union(current, next) {
		path := keysSection + "." + name
		was, before := current[name]
		is, after := next[name]
		d.compareExistence(path, before, after)
		if !before || !after {
			continue
		}
		now := keyFields(is.Key)
		for i, field := range keyFields(was.Key) {
			if field != now[i] {
				d.Changes = append(d.Changes, fmt.Sprintf("%s.%s: %s → %s", path, field[0], field[1], now[i][1]))
			}
		}
	}
}

// compareSecrets adds that the content of a file differs, and not how: it is a secret.
func (d *Difference) compareSecrets(current, next *Config) {
	was, is := current.Access.Tokens, next.Access.Tokens
	if was == nil || is == nil {
		return // the names of files differ, too
	}
	if current.JWTSecretFile == next.JWTSecretFile && !bytes.Equal(was.Secret, is.Secret) {
		d.Changes = append(d.Changes, secretFile+": the secret changed")
	}
	if current.JWTKeysFile == next.JWTKeysFile && !reflect.DeepEqual(was.Keys, is.Keys) {
		d.Changes = append(d.Changes, keysFile+": the keys changed")
	}
}

// compareNamespace adds what differs in the settings that a namespace sets, before or now. For how a namespace is
// stored it also matters whether it sets a setting at all.
func (d *Difference) compareNamespace(path string, a, b *Values) {
	for _, def := range Definitions() {
		setA, setB := a.path != "" && a.isSet(def.Name), b.path != "" && b.isSet(def.Name)
		if def.Namespace && (setA || setB) && (!same(def, a, b) || !def.Reload && setA != setB) {
			d.add(def, path, a, b)
		}
	}
}

// add adds a setting that differs.
func (d *Difference) add(def Definition, path string, a, b *Values) {
	text := fmt.Sprintf("%s%s: %s → %s", path, def.Name,
		cmp.Or(a.display(def.Name), "not set"), cmp.Or(b.display(def.Name), "not set"))
	if def.Reload {
		d.Changes = append(d.Changes, text)
	} else {
		d.Refused = append(d.Refused, text+" requires a restart")
	}
}

func same(def Definition, a, b *Values) bool {
	return reflect.DeepEqual(def.field(&a.Settings).Interface(), def.field(&b.Settings).Interface())
}
