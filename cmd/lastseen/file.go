package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
)

// namespacesKey is the key of a file under which namespaces have settings of their own.
const namespacesKey = "namespaces"

// given is a value as it was written somewhere.
type given struct {
	text   string
	origin origin
}

// configFile is what a configuration file says.
type configFile struct {
	values     map[string]given            // by setting
	namespaces map[string]map[string]given // by name, then by setting
	keys       map[string]apiKey           // by name
}

// fileReader reads one file and collects what is wrong with it.
type fileReader struct {
	name     string
	named    origin // where the name comes from
	known    []definition
	problems *problems
}

// read returns what the file says. What it says wrong is left out, and among the problems; an error means
// that nothing can be read of it.
func (r *fileReader) read() (configFile, error) {
	f := configFile{values: map[string]given{}, namespaces: map[string]map[string]given{}, keys: map[string]apiKey{}}
	root, err := r.parse()
	if root == nil || err != nil {
		return f, err
	}
	r.each(root, "", "the file", func(key, value *yaml.Node) {
		switch key.Value {
		case namespacesKey:
			r.each(value, namespacesKey+".", namespacesKey, func(key, value *yaml.Node) {
				f.namespaces[key.Value] = r.namespace(key, value)
			})
		case keysKey:
			r.each(value, keysKey+".", keysKey, func(key, value *yaml.Node) {
				f.keys[key.Value] = r.key(key, value)
			})
		default:
			r.setting(f.values, key, value)
		}
	})
	return f, nil
}

// setting notes the value of a setting for all.
func (r *fileReader) setting(values map[string]given, key, value *yaml.Node) {
	d, ok := find(r.known, key.Value)
	if !ok || !d.file {
		r.unknown(key, "", func(d definition) bool { return d.file })
		return
	}
	r.take(values, d, "", key, value)
}

// at is the place of a node.
func (r *fileReader) at(n *yaml.Node) origin {
	return origin{fromFile, r.name + ":" + strconv.Itoa(n.Line)}
}

// each visits the entries of a mapping; nothing is an empty one. Where it stands in the file is path, and
// what is called what.
func (r *fileReader) each(n *yaml.Node, path, what string, visit func(key, value *yaml.Node)) {
	n = resolved(n)
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.problems.addf("%s: %s holds %s; use a mapping, such as \"name: value\"", r.at(n), what, describe(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolved(n.Content[i])
		line, again := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.problems.addf("%s: %s has %s as a name; use text", r.at(key), what, describe(key))
		case again:
			r.problems.addf("%s: %s is a duplicate of line %d", r.at(key), path+name(key.Value), line)
		default:
			first[key.Value] = key.Line
			visit(key, n.Content[i+1])
		}
	}
}

// namespace returns what the file says about one namespace.
func (r *fileReader) namespace(key, value *yaml.Node) map[string]given {
	values := map[string]given{}
	if err := lastseen.CheckNamespace(key.Value); err != nil {
		r.problems.addf("%s: %s: %v", r.at(key), namespacesKey, err)
	}
	path := namespacesKey + "." + name(key.Value)
	r.each(value, path+".", path, func(key, value *yaml.Node) {
		d, ok := find(r.known, key.Value)
		if !ok || !d.namespace {
			r.unknown(key, path+".", func(d definition) bool { return d.namespace })
			return
		}
		r.take(values, d, path+".", key, value)
	})
	return values
}

// take notes the value of a setting, if it is a single one, or a list of them where several are taken.
func (r *fileReader) take(values map[string]given, d definition, path string, key, value *yaml.Node) {
	value = resolved(value)
	switch {
	case d.list && value.Kind == yaml.SequenceNode:
		texts := list(r, path+d.name, d.takes, value, func(text string) (string, error) { return text, nil })
		if len(texts) > 0 {
			values[d.name] = given{strings.Join(texts, ", "), r.at(key)}
		}
	case isNull(value):
		r.problems.addf("%s: %s%s has no value; use %s", r.at(key), path, d.name, d.takes)
	case value.Kind != yaml.ScalarNode:
		r.problems.addf("%s: %s%s holds %s; use %s", r.at(key), path, d.name, describe(value), d.takes)
	case d.text && value.ShortTag() != "!!str":
		r.problems.addf("%s: %s%s: put the value in quotes; use %s", r.at(key), path, d.name, d.takes)
	default:
		values[d.name] = given{value.Value, r.at(key)}
	}
}

// unknown says that there is no such setting here, and what may have been meant.
func (r *fileReader) unknown(key *yaml.Node, path string, here func(definition) bool) {
	var names []string
	if path == "" {
		names = append(names, namespacesKey, keysKey)
	}
	for _, d := range r.known {
		if here(d) {
			names = append(names, d.name)
		}
	}
	d, _ := find(r.known, key.Value)
	where := "in a file: use the flag"
	switch {
	case d.namespace:
		where = "for the whole server: set it for a namespace, under " + namespacesKey
	case d.file:
		where = "for one namespace: it applies to the whole server"
	case d.name == "":
		r.problems.addf("%s: %s: unknown setting%s", r.at(key), path+name(key.Value), suggest(strings.ReplaceAll(strings.ToLower(key.Value), "_", "-"), names))
		return
	}
	r.problems.addf("%s: %s cannot be set %s", r.at(key), path+d.name, where)
}

func find(known []definition, name string) (definition, bool) {
	for _, d := range known {
		if d.name == name {
			return d, true
		}
	}
	return definition{}, false
}

// name shows a name from a file: quoted and cut if it is a strange one, and not at all if it may be a secret.
func name(text string) string {
	if strings.HasPrefix(text, auth.KeyPrefix) {
		return auth.KeyPrefix + "…"
	}
	strange := func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	if text == "" || len(text) > lastseen.MaxNamespaceLen || strings.ContainsFunc(text, strange) {
		return fmt.Sprintf("%.64q", text)
	}
	return text
}
