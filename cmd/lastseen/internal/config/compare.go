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
	listed := d.Changes
	if more := len(listed) - maxSummary; more > 0 {
		listed = append(listed[:maxSummary:maxSummary], fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(listed, "; "), "none")
}

// Compare returns what differs in the next configuration. Settings that a file cannot have stay the same while a
// process runs.
func Compare(current, next *Config) (d Difference) {
	d.compareSettings("", &current.Values, &next.Values)
	for _, name := range union(current.namespaces, next.namespaces) {
		path := namespacesSection + "." + name
		d.addExistence(path, current.Configured(name), next.Configured(name))
		d.compareSettings(path+".", current.Namespace(name), next.Namespace(name))
	}
	for _, name := range union(current.keys, next.keys) {
		d.compareKey(keysSection+"."+name, current.keys[name], next.keys[name])
	}
	for _, name := range union(current.webhooks, next.webhooks) {
		d.compareWebhook(webhooksSection+"."+name, current.webhooks[name], next.webhooks[name])
	}
	d.compareSecrets(current, next)
	if current.secured() && !next.secured() && next.Auth != AuthNone {
		d.Refused = append(d.Refused, "no "+keysSection+" and no JWTs are left, so anyone would have full access: "+
			"set auth: none to allow it")
	}
	return d
}

// union returns the keys of both maps in order.
func union[V any](a, b map[string]V) []string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}

// compareSettings adds what differs in the settings of the server, or in those that a namespace sets, before or now.
func (d *Difference) compareSettings(path string, a, b *Values) {
	for _, def := range Definitions() {
		before, now := def.field(&a.Settings).Interface(), def.field(&b.Settings).Interface()
		differs := !reflect.DeepEqual(before, now)
		if setA, setB := a.isSet(def.Name), b.isSet(def.Name); path != "" {
			// How a namespace is stored also depends on whether it sets a setting at all.
			differs = (setA || setB) && (differs || !def.Reload && setA != setB)
		}
		if differs && def.allowedAt(path) {
			d.addSetting(path, a.get(def.Name), b.get(def.Name))
		}
	}
}

// addSetting adds a setting that differs.
func (d *Difference) addSetting(path string, a, b resolved) {
	text := fmt.Sprintf("%s%s: %s → %s", path, a.def.Name, a.display(), b.display())
	if a.def.Reload {
		d.Changes = append(d.Changes, text)
	} else {
		d.Refused = append(d.Refused, text+" requires a restart")
	}
}

// compareKey adds what differs in an API key. A key without a name does not exist.
func (d *Difference) compareKey(path string, a, b apiKey) {
	if d.addExistence(path, a.Name != "", b.Name != ""); a.Name != b.Name {
		return
	}
	after := keyLines(b.Key)
	for i, line := range keyLines(a.Key) {
		if line != after[i] {
			_, value, _ := strings.Cut(after[i], ": ")
			d.Changes = append(d.Changes, fmt.Sprintf("%s.%s → %s", path, line, value))
		}
	}
}

// compareSecrets adds the files with keys or secrets whose content differs, without the content.
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

// addExistence adds what was added or removed.
func (d *Difference) addExistence(path string, before, now bool) {
	switch {
	case !before && now:
		d.Changes = append(d.Changes, path+" added")
	case before && !now:
		d.Changes = append(d.Changes, path+" removed")
	}
}
