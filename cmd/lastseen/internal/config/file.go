package config

import (
	"cmp"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
)

// The keys of a file that hold something other than a setting.
const (
	namespacesKey = "namespaces" // settings of namespaces
	keysKey       = "keys"       // API keys
)

// fileContent is what a configuration file holds.
type fileContent struct {
	values     map[string]resolved            // by setting
	namespaces map[string]map[string]resolved // by name, then by setting
	keys       map[string]apiKey              // by name
}

// fileReader reads one file and collects its problems.
type fileReader struct {
	name     string
	problems *Error
}

// readFile returns what is valid in the file that the settings name, if any, and reports the rest.
func (c *Config) readFile(e *Error) fileContent {
	f := fileContent{map[string]resolved{}, map[string]map[string]resolved{}, map[string]apiKey{}}
	if c.Config == "" {
		return f
	}
	r, named := &fileReader{c.Config, e}, c.resolved["config"]
	root, err := parseYAML(c.Config, named.source)
	if err != nil {
		e.Addf("%v", err)
		named.invalid = true
		c.resolved["config"] = named
		return f
	}
	for key, value := range r.entries(root, "") {
		switch key.Value {
		case namespacesKey:
			for key, value := range r.entries(value, namespacesKey+".") {
				f.namespaces[key.Value] = r.namespace(key, value)
			}
		case keysKey:
			for key, value := range r.entries(value, keysKey+".") {
				f.keys[key.Value] = r.apiKey(key, value)
			}
		default:
			r.setting(f.values, key, value, "", func(d Definition) bool { return d.File })
		}
	}
	return f
}

func (r *fileReader) namespace(key, value *yaml.Node) map[string]resolved {
	values := map[string]resolved{}
	if err := lastseen.CheckNamespace(key.Value); err != nil {
		r.addf(key, "%s: %v", namespacesKey, err)
	}
	path := namespacesKey + "." + displayName(key.Value) + "."
	for key, value := range r.entries(value, path) {
		r.setting(values, key, value, path, func(d Definition) bool { return d.Namespace })
	}
	return values
}

// at returns the place of a node.
func (r *fileReader) at(n *yaml.Node) source { return source{at: r.name + ":" + strconv.Itoa(n.Line)} }

// addf adds a problem at a node.
func (r *fileReader) addf(n *yaml.Node, format string, args ...any) {
	r.problems.Addf("%s: %s", r.at(n), fmt.Sprintf(format, args...))
}

// entries yields the entries of a mapping, each name once. Null is an empty mapping.
func (r *fileReader) entries(n *yaml.Node, path string) iter.Seq2[*yaml.Node, *yaml.Node] {
	n, section := follow(n), cmp.Or(strings.TrimSuffix(path, "."), "the file")
	return func(yield func(key, value *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			if !isNull(n) {
				r.addf(n, "%s holds %s; use a mapping, such as \"name: value\"", section, kindOf(n))
			}
			return
		}
		lines := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := follow(n.Content[i])
			line, duplicate := lines[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode:
				r.addf(key, "%s has %s as a name; use text", section, kindOf(key))
				continue
			case duplicate:
				r.addf(key, "%s is a duplicate of line %d", path+displayName(key.Value), line)
				continue
			}
			lines[key.Value] = key.Line
			if !yield(key, follow(n.Content[i+1])) {
				return
			}
		}
	}
}

// setting stores the text of a setting that is allowed in a section.
func (r *fileReader) setting(
	values map[string]resolved, key, value *yaml.Node, path string, allowed func(Definition) bool,
) {
	d, _ := Find(key.Value)
	if !allowed(d) {
		r.unknown(key, path, allowed)
	} else if text, ok := r.text(d, path, value); ok {
		values[d.Name] = resolved{text: text, source: r.at(key)}
	}
}

// text returns the text of a setting: a single value, or a list if the setting takes several.
func (r *fileReader) text(d Definition, path string, value *yaml.Node) (text string, ok bool) {
	switch {
	case d.list && value.Kind == yaml.SequenceNode:
		items := readList(r, value, path+d.Name, d.Takes, func(text string) (string, error) { return text, nil })
		return strings.Join(items, ", "), len(items) > 0
	case isNull(value):
		r.addf(value, "%s%s has no value; use %s", path, d.Name, d.Takes)
	case value.Kind != yaml.ScalarNode:
		r.addf(value, "%s%s holds %s; use %s", path, d.Name, kindOf(value), d.Takes)
	case d.format.text && value.ShortTag() != "!!str":
		r.addf(value, "%s%s: put the value in quotes; use %s", path, d.Name, d.Takes)
	default:
		return value.Value, true
	}
	return "", false
}

// readList reads a list of at least one item.
func readList[T any](
	r *fileReader, value *yaml.Node, path, takes string, parse func(string) (T, error),
) (items []T) {
	if value.Kind != yaml.SequenceNode {
		r.addf(value, "%s holds %s; use %s", path, kindOf(value), takes)
		return nil
	}
	if len(value.Content) == 0 {
		r.addf(value, "%s is empty; use %s", path, takes)
	}
	for _, n := range value.Content {
		n = follow(n)
		if n.Kind != yaml.ScalarNode || isNull(n) {
			r.addf(n, "%s has %s in it; use %s", path, kindOf(n), takes)
			continue
		}
		item, err := parse(n.Value)
		if err != nil {
			r.addf(n, "%s: %v; use %s", path, err, takes)
		}
		items = append(items, item)
	}
	return items
}

// unknown reports a name that is not allowed in a section, and suggests where or what to set instead.
func (r *fileReader) unknown(key *yaml.Node, path string, allowed func(Definition) bool) {
	d, exists := Find(key.Value)
	switch {
	case !exists:
		names := []string{namespacesKey, keysKey}
		if path != "" {
			names = nil
		}
		for _, d := range Definitions() {
			if allowed(d) {
				names = append(names, d.Name)
			}
		}
		r.unknownName(key, path, strings.ReplaceAll(strings.ToLower(key.Value), "_", "-"), names)
	case d.Namespace:
		r.addf(key, "%s cannot be set for the whole server: set it for a namespace, under %s", path+d.Name, namespacesKey)
	case d.File:
		r.addf(key, "%s cannot be set for one namespace: it applies to the whole server", path+d.Name)
	default:
		r.addf(key, "%s cannot be set in a file: use the flag", path+d.Name)
	}
}

// unknownName reports a name that does not exist, and suggests one that does.
func (r *fileReader) unknownName(key *yaml.Node, path, meant string, names []string) {
	r.addf(key, "%s: unknown setting%s", path+displayName(key.Value), Suggest(meant, names))
}

// displayName returns a name from a file: quoted and cut if it is unusual, and without what may be a secret.
func displayName(text string) string {
	if strings.HasPrefix(text, auth.KeyPrefix) {
		return auth.KeyPrefix + "…"
	}
	unusual := func(r rune) bool {
		return r != '.' && r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	if text == "" || len(text) > lastseen.MaxNamespaceLen || strings.ContainsFunc(text, unusual) {
		return fmt.Sprintf("%.64q", text)
	}
	return text
}
