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
	namespacesSection = "namespaces" // settings of namespaces
	keysSection       = "keys"       // API keys
)

// fileReader reads one configuration file.
type fileReader struct {
	file       string
	problems   *Error
	values     map[string]resolved            // by setting
	namespaces map[string]map[string]resolved // by name, then by setting
	keys       map[string]apiKey              // by name
}

// readFile reads the file that the settings name, if any.
func (c *Config) readFile(e *Error) *fileReader {
	r := &fileReader{c.Config, e, map[string]resolved{}, map[string]map[string]resolved{}, map[string]apiKey{}}
	if c.Config == "" {
		return r
	}
	named := c.resolved["config"]
	root, err := parseYAML(c.Config, named.source)
	if err == nil {
		r.read(root)
		return r
	}
	e.Addf("%v", err)
	named.invalid = true
	c.resolved["config"] = named
	return r
}

func (r *fileReader) read(root *yaml.Node) {
	for name, value := range r.entries(root, "") {
		switch name.Value {
		case namespacesSection:
			for name, value := range r.entries(value, namespacesSection+".") {
				r.namespaces[name.Value] = r.namespace(name, value)
			}
		case keysSection:
			for name, value := range r.entries(value, keysSection+".") {
				r.keys[name.Value] = r.apiKey(name, value)
			}
		default:
			r.setting(r.values, "", name, value)
		}
	}
}

func (r *fileReader) namespace(name, value *yaml.Node) map[string]resolved {
	if err := lastseen.CheckNamespace(name.Value); err != nil {
		r.addf(name, "%s: %v", namespacesSection, err)
	}
	values, path := map[string]resolved{}, namespacesSection+"."+displayName(name.Value)+"."
	for name, value := range r.entries(value, path) {
		r.setting(values, path, name, value)
	}
	return values
}

// at returns the place of a node.
func (r *fileReader) at(n *yaml.Node) source { return source{at: r.file + ":" + strconv.Itoa(n.Line)} }

// addf adds a problem at a node.
func (r *fileReader) addf(n *yaml.Node, format string, args ...any) {
	r.problems.Addf("%s: %s", r.at(n), fmt.Sprintf(format, args...))
}

// entries yields the entries of a mapping, each name once. Null is an empty mapping.
func (r *fileReader) entries(n *yaml.Node, path string) iter.Seq2[*yaml.Node, *yaml.Node] {
	n, section := follow(n), cmp.Or(strings.TrimSuffix(path, "."), "the file")
	return func(yield func(name, value *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			if !isNull(n) {
				r.addf(n, "%s holds %s; use a mapping, such as \"name: value\"", section, nodeType(n))
			}
			return
		}
		lines := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := follow(n.Content[i])
			line, duplicate := lines[name.Value]
			switch {
			case name.Kind != yaml.ScalarNode:
				r.addf(name, "%s has %s as a name; use text", section, nodeType(name))
				continue
			case duplicate:
				r.addf(name, "%s is a duplicate of line %d", path+displayName(name.Value), line)
				continue
			}
			lines[name.Value] = name.Line
			if !yield(name, follow(n.Content[i+1])) {
				return
			}
		}
	}
}

// setting stores the text of a setting.
func (r *fileReader) setting(values map[string]resolved, path string, name, value *yaml.Node) {
	d, _ := Find(name.Value)
	if !d.allowedAt(path) {
		r.unknown(name, path)
	} else if text, ok := r.text(d, path, value); ok {
		values[d.Name] = resolved{text: text, source: r.at(name)}
	}
}

// allowedAt reports whether a file can have the setting at a path: of the server, "", or of a namespace.
func (d Definition) allowedAt(path string) bool {
	return path == "" && d.File || path != "" && d.Namespace
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
		r.addf(value, "%s%s holds %s; use %s", path, d.Name, nodeType(value), d.Takes)
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
		r.addf(value, "%s holds %s; use %s", path, nodeType(value), takes)
		return nil
	}
	if len(value.Content) == 0 {
		r.addf(value, "%s is empty; use %s", path, takes)
	}
	for _, n := range value.Content {
		n = follow(n)
		if n.Kind != yaml.ScalarNode || isNull(n) {
			r.addf(n, "%s has %s in it; use %s", path, nodeType(n), takes)
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

// unknown reports a name that is not allowed at a path, and suggests what to set instead, or where.
func (r *fileReader) unknown(name *yaml.Node, path string) {
	d, exists := Find(name.Value)
	switch {
	case !exists:
		names := []string{namespacesSection, keysSection}
		if path != "" {
			names = nil
		}
		for _, d := range Definitions() {
			if d.allowedAt(path) {
				names = append(names, d.Name)
			}
		}
		r.unknownName(name, path, strings.ReplaceAll(strings.ToLower(name.Value), "_", "-"), names)
	case d.Namespace:
		r.addf(name, "%s cannot be set for the whole server: set it for a namespace, under %s",
			path+d.Name, namespacesSection)
	case d.File:
		r.addf(name, "%s cannot be set for one namespace: it applies to the whole server", path+d.Name)
	default:
		r.addf(name, "%s cannot be set in a file: use the flag", path+d.Name)
	}
}

// unknownName reports a name that does not exist, and suggests one that does.
func (r *fileReader) unknownName(name *yaml.Node, path, meant string, names []string) {
	r.addf(name, "%s: unknown setting%s", path+displayName(name.Value), Suggest(meant, names))
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
