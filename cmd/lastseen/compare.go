package main

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lastseen/lastseen/api/auth"
)

// difference is what is different between two configurations, for people.
type difference struct {
	changes []string
	refused []string // why they cannot take effect while the service runs
}

// maxSummary is how many changes a summary tells: there may be thousands of namespaces.
const maxSummary = 20

// summary tells the changes in one line.
func (d difference) summary() string {
	told := slices.Clone(d.changes[:min(len(d.changes), maxSummary)])
	if more := len(d.changes) - len(told); more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(told, "; "), "none")
}

// compare returns what is different in the next configuration. What cannot be set in a file does not count:
// it stays as it was for as long as a process runs.
func compare(current, next *config) (d difference) {
	known := definitions()
	for _, def := range known {
		if def.file && !same(def, &current.scope, &next.scope) {
			d.note(def, "", &current.scope, &next.scope)
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append(current.names(), next.names()...)))) {
		path := namespacesKey + "." + name
		_, was := current.namespaces[name]
		_, is := next.namespaces[name]
		if !was {
			d.changes = append(d.changes, path+" added")
		}
		if !is {
			d.changes = append(d.changes, path+" removed")
		}
		d.compareNamespace(known, path+".", current.namespace(name), next.namespace(name))
	}
	d.compareKeys(current, next)
	d.compareContents(current, next)
	if current.secured() && !next.secured() && next.Auth != authNone {
		d.refused = append(d.refused, "no "+keysKey+" and no JWTs are left, so anyone would have full access: set auth: none to allow it")
	}
	return d
}

// compareKeys notes what differs in the API keys.
func (d *difference) compareKeys(current, next *config) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append(current.keyNames(), next.keyNames()...)))) {
		was, before := current.keys[name]
		is, after := next.keys[name]
		path := keysKey + "." + name
		switch {
		case !before:
			d.changes = append(d.changes, path+" added")
		case !after:
			d.changes = append(d.changes, path+" removed")
		default:
			d.compareKey(path+".", was.Key, is.Key)
		}
	}
}

func (d *difference) compareKey(path string, was, is auth.Key) {
	for _, part := range []struct{ name, was, is string }{
		{keyHash, auth.FormatKeyHash(was.Hash), auth.FormatKeyHash(is.Hash)},
		{keyScopes, quotedList(was.Scopes), quotedList(is.Scopes)},
		{keyNamespaces, quotedList(was.Namespaces), quotedList(is.Namespaces)},
	} {
		if part.was != part.is {
			d.changes = append(d.changes, path+part.name+": "+part.was+" → "+part.is)
		}
	}
}

// compareContents notes that what is in a file differs, and not what: it is a secret.
func (d *difference) compareContents(current, next *config) {
	was, is := current.access.Tokens, next.access.Tokens
	if was == nil || is == nil {
		return // the names of files differ, too
	}
	if current.JWTSecretFile == next.JWTSecretFile && !bytes.Equal(was.Secret, is.Secret) {
		d.changes = append(d.changes, secretFile+": the secret changed")
	}
	if current.JWTKeysFile == next.JWTKeysFile && !reflect.DeepEqual(was.Keys, is.Keys) {
		d.changes = append(d.changes, keysFile+": the keys changed")
	}
}

// compareNamespace notes what differs in a namespace by its own settings, of before or of now. For how it is
// stored it matters also whether something is set at all.
func (d *difference) compareNamespace(known []definition, path string, a, b *scope) {
	for _, def := range known {
		ownA, ownB := a.path != "" && a.own(def.name), b.path != "" && b.own(def.name)
		if def.namespace && (ownA || ownB) && (!same(def, a, b) || !def.reload && ownA != ownB) {
			d.note(def, path, a, b)
		}
	}
}

func (d *difference) note(def definition, path string, a, b *scope) {
	text := fmt.Sprintf("%s%s: %s → %s", path, def.name, cmp.Or(a.chosen[def.name].shown, "not set"), cmp.Or(b.chosen[def.name].shown, "not set"))
	if def.reload {
		d.changes = append(d.changes, text)
	} else {
		d.refused = append(d.refused, text+" requires a restart")
	}
}

func same(def definition, a, b *scope) bool {
	return reflect.DeepEqual(def.in(&a.settings), def.in(&b.settings))
}
