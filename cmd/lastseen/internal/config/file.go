package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"sort"
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
	values     []resolved
	namespaces map[string][]resolved // by name
	keys       map[string]apiKey     // by name
}

// readFile reads the file that the settings name, if any.
func (c *Config) readFile(e *Error) *fileReader {
	r := &fileReader{file: c.Config, problems: e, namespaces: map[string][]resolved{}, keys: map[string]apiKey{}}
	if c.Config == "" {
		return r
	}
	named := c.get("config")
	root, err := parseYAML(c.Config, named.prefix)
	if err != nil {
		e.Addf("%v", err)
		named.invalid = true
		c.set["config"] = named
		return r
	}
	r.entries(root, "", func(name, value *yaml.Node) {
		switch name.Value {
		case namespacesSection:
			r.entries(value, namespacesSection+".", r.namespace)
		case keysSection:
			r.entries(value, keysSection+".", r.apiKey)
		default:
			r.setting(&r.values, "", name, value)
		}
	})
	return r
}

// namespace reads the settings of a namespace.
func (r *fileReader) namespace(name, value *yaml.Node) {
	if err := lastseen.CheckNamespace(name.Value); err != nil {
		r.addf(name, "%s: %v", namespacesSection, err)
	}
	var values []resolved
	path := namespacesSection + "." + displayName(name.Value) + "."
	r.entries(value, path, func(name, value *yaml.Node) { r.setting(&values, path, name, value) })
	r.namespaces[name.Value] = values
}

// at returns the place of a node.
func (r *fileReader) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.file, n.Line) }

// addf adds a problem at a node.
func (r *fileReader) addf(n *yaml.Node, format string, args ...any) {
	r.problems.Addf("%s: %s", r.at(n), fmt.Sprintf(format, args...))
}

// entries calls f for each entry of a mapping, each name once. Null is an empty mapping.
func (r *fileReader) entries(n *yaml.Node, path string, f func(name, value *yaml.Node)) {
	n, section := follow(n), cmp.Or(strings.TrimSuffix(path, "."), "the file")
	if n.Kind != yaml.MappingNode {
		if !isNull(n) {
			r.addf(n, "%s holds %s; use a mapping, such as \"name: value\"", section, nodeType(n))
		}
		return
	}
	lines := map[string]int{}
	for entry := range slices.Chunk(n.Content, 2) {
		name, value := follow(entry[0]), follow(entry[1])
		line, duplicate := lines[name.Value]
		switch {
		case name.Kind != yaml.ScalarNode:
			r.addf(name, "%s has %s as a name; use text", section, nodeType(name))
		case duplicate:
			r.addf(name, "%s is a duplicate of line %d", path+displayName(name.Value), line)
		default:
			lines[name.Value] = name.Line
			f(name, value)
		}
	}
}

// setting adds the text of a setting to values: a single value, or a list if the setting takes several.
func (r *fileReader) setting(values *[]resolved, path string, name, value *yaml.Node) {
	d, _ := Find(name.Value)
	if !d.allowedAt(path) {
		r.unknown(name, path)
		return
	}
	full, text, problem := path+d.Name, value.Value, ""
	switch {
	case d.list && value.Kind == yaml.SequenceNode:
		items := readList(r, value, full, d.Takes, func(text string) (string, error) { return text, nil })
		if len(items) == 0 {
			return
		}
		text = strings.Join(items, ", ")
	case isNull(value):
		problem = " has no value"
	case value.Kind != yaml.ScalarNode:
		problem = " holds " + nodeType(value)
	case d.format.text && value.ShortTag() != "!!str":
		problem = ": put the value in quotes"
	}
	if problem != "" {
		r.addf(value, "%s%s; use %s", full, problem, d.Takes)
		return
	}
	at := r.at(name)
	*values = append(*values, resolved{def: d, name: full, text: text, source: at, prefix: at + ": " + full})
}

// allowedAt reports whether a file can have the setting at a path: of the server, "", or of a namespace.
func (d Definition) allowedAt(path string) bool {
	return path == "" && d.File || path != "" && d.Namespace
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
	switch d, exists := Find(name.Value); {
	case !exists:
		var names []string
		if path == "" {
			names = []string{namespacesSection, keysSection}
		}
		for _, d := range Definitions() {
			if d.allowedAt(path) {
				names = append(names, d.Name)
			}
		}
		r.unknownName(name, path, names)
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
func (r *fileReader) unknownName(name *yaml.Node, path string, names []string) {
	meant := strings.ReplaceAll(strings.ToLower(name.Value), "_", "-")
	r.addf(name, "%s: unknown setting%s", path+displayName(name.Value), Suggest(meant, names))
}

// displayName returns a name from a file: quoted and cut if it is unusual, and without what may be a secret.
func displayName(text string) string {
	if strings.HasPrefix(text, auth.KeyPrefix) {
		return auth.KeyPrefix + "…"
	}
	unusual := func(r rune) bool {
		return !strings.ContainsRune(".-_", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	if text == "" || len(text) > lastseen.MaxNamespaceLen || strings.ContainsFunc(text, unusual) {
		return fmt.Sprintf("%.64q", text)
	}
	return text
}

// maxFileSize is the maximum size of a file, in bytes; a device has no end.
const maxFileSize = 16 << 20

// ReadFile returns the content of a file of up to 16 MiB. The error does not name the file.
func ReadFile(name string) (content []byte, err error) {
	file, err := os.Open(name)
	if err == nil {
		defer file.Close()
		content, err = io.ReadAll(io.LimitReader(file, maxFileSize+1))
	}
	var failed *fs.PathError
	switch {
	case errors.As(err, &failed):
		err = failed.Err
	case len(content) > maxFileSize:
		err = errors.New("is too large: the maximum is 16 MiB")
	}
	return content, err
}

// parseYAML returns the root of a file. A read error starts with the flag or the variable that names the file.
func parseYAML(name, setting string) (*yaml.Node, error) {
	content, err := ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", setting, name, err)
	}
	document, second, err := decode(content)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s:%d: %s", name, brokenLine(content, err), syntaxMessage(err))
	case !second.IsZero():
		return nil, fmt.Errorf("%s:%d: the file holds a second YAML document: only one is allowed",
			name, max(1, second.Line))
	case len(document.Content) == 0:
		return &document, nil
	}
	return document.Content[0], nil
}

// decode returns the first document and the one after it, each empty if there is none.
func decode(content []byte) (document, second yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err = decoder.Decode(&document); err == nil {
		err = decoder.Decode(&second)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return document, second, err
}

// syntaxPrefix matches the start of the messages of the YAML library.
var syntaxPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

// syntaxMessage returns what is wrong with YAML and, for the most common mistake, namespaces: [*], what to do.
func syntaxMessage(err error) string {
	message := syntaxPrefix.ReplaceAllString(err.Error(), "")
	if strings.Contains(message, "alphabetic or numeric character") {
		message += " after * or &: put values that start with * in quotes"
	}
	return message
}

// brokenLine returns the first line with which the content has the error. The line that the library reports is
// often an earlier one, where a block starts, or missing.
func brokenLine(content []byte, whole error) int {
	lines := bytes.SplitAfter(content, []byte("\n"))
	return 1 + sort.Search(len(lines)-1, func(n int) bool {
		_, _, err := decode(bytes.Join(lines[:n+1], nil))
		return err != nil && err.Error() == whole.Error()
	})
}

// follow returns the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// isNull reports whether a node is null, or a file empty.
func isNull(n *yaml.Node) bool {
	return n.IsZero() || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// nodeType returns what a node is, for a message.
func nodeType(n *yaml.Node) string {
	switch {
	case isNull(n):
		return "nothing"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	}
	return "a single value"
}
