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

// fileReader reads a configuration file into a configuration.
type fileReader struct {
	file     string
	config   *Config
	problems *Error
}

// readFile reads the file that the settings name, if any.
func (c *Config) readFile(e *Error) {
	if c.Config == "" {
		return
	}
	named := c.get("config")
	root, err := parseYAML(c.Config, named.prefix)
	if err != nil {
		e.Addf("%v", err)
		named.invalid = true
		c.set["config"] = named
		return
	}
	r, namespaces := &fileReader{c.Config, c, e}, &yaml.Node{}
	r.entries(root, "", func(name, value *yaml.Node) {
		switch name.Value {
		case namespacesSection:
			namespaces = value // for the end: they inherit all other settings
		case keysSection:
			r.entries(value, keysSection+".", r.apiKey)
		case webhooksSection:
			r.entries(value, webhooksSection+".", r.webhook)
		default:
			r.setting(&c.Values, "", name, value)
		}
	})
	r.entries(namespaces, namespacesSection+".", r.namespace)
}

// namespace reads the settings of a namespace.
func (r *fileReader) namespace(name, value *yaml.Node) {
	if err := lastseen.CheckNamespace(name.Value); err != nil {
		r.addf(name, "%s: %v", namespacesSection, err)
	}
	ns, path := r.config.inherit(), namespacesSection+"."+displayName(name.Value)+"."
	r.config.namespaces[name.Value] = ns
	r.entries(value, path, func(name, value *yaml.Node) { r.setting(ns, path, name, value) })
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

// fields reads an entry of a section into a struct, all of whose fields have definitions. It returns the names of those
// that are set, and reports which of the first ones, that are required, are not.
func (r *fileReader) fields(section string, name, value *yaml.Node, all []Definition, required int, to any) []string {
	path, names, set := section+"."+displayName(name.Value)+".", make([]string, len(all)), []string{}
	for i, d := range all {
		names[i] = d.Name
	}
	r.entries(value, path, func(field, value *yaml.Node) {
		d, ok := find(all, field.Value)
		if !ok {
			r.unknownName(field, path, names)
			return
		}
		set = append(set, d.Name)
		if text, ok := r.text(d, path+d.Name, value); ok {
			if err := d.parse(to, text); err != nil {
				r.addf(value, "%s%s: %v; use %s", path, d.Name, err, d.Takes)
			}
		}
	})
	for _, d := range all[:required] {
		if !slices.Contains(set, d.Name) {
			r.addf(name, "%s%s is missing; use %s", path, d.Name, d.Takes)
		}
	}
	return set
}

// setting reads a setting at a path: of the server, "", or of a namespace.
func (r *fileReader) setting(s *Values, path string, name, value *yaml.Node) {
	d, _ := Find(name.Value)
	if !d.allowedAt(path) {
		r.unknown(name, path)
		return
	}
	full, at := path+d.Name, r.at(name)
	if text, ok := r.text(d, full, value); ok {
		s.apply(r.problems, resolved{def: d, name: full, text: text, source: at, prefix: at + ": " + full})
	}
}

// text returns the text of a value: a single value, or the items of a list separated by commas.
func (r *fileReader) text(d Definition, path string, value *yaml.Node) (text string, ok bool) {
	problem := " holds " + nodeType(value)
	switch {
	case d.list && value.Kind == yaml.SequenceNode:
		return r.items(d, path, value)
	case value.Kind != yaml.ScalarNode || isNull(value) || d.list && d.Group == "":
	case d.format.text && value.ShortTag() != "!!str":
		problem = ": put the value in quotes"
	default:
		return value.Value, true
	}
	r.addf(value, "%s%s; use %s", path, problem, d.Takes)
	return "", false
}

// items returns the items of a list of at least one, and reports each invalid one at its line.
func (r *fileReader) items(d Definition, path string, list *yaml.Node) (text string, ok bool) {
	var items []string
	if ok = len(list.Content) > 0; !ok {
		r.addf(list, "%s is empty; use %s", path, d.Takes)
	}
	for _, n := range list.Content {
		n = follow(n)
		_, err := d.format.parse(n.Value)
		if n.Kind != yaml.ScalarNode || isNull(n) {
			err = fmt.Errorf("has %s in it", nodeType(n))
		}
		if err != nil {
			r.addf(n, "%s: %v; use %s", path, err, d.Takes)
			ok = false
		}
		items = append(items, n.Value)
	}
	return strings.Join(items, ", "), ok
}

// allowedAt reports whether a file can have the setting at a path: of the server, "", or of a namespace.
func (d Definition) allowedAt(path string) bool {
	return path == "" && d.File || path != "" && d.Namespace
}

// unknown reports a setting that is not allowed at a path, and suggests what to set instead, or where.
func (r *fileReader) unknown(name *yaml.Node, path string) {
	d, exists := Find(name.Value)
	where := "with the flag"
	switch {
	case !exists:
		var names []string
		if path == "" {
			names = []string{namespacesSection, keysSection, webhooksSection}
		}
		for _, d := range Definitions() {
			if d.allowedAt(path) {
				names = append(names, d.Name)
			}
		}
		r.unknownName(name, path, names)
		return
	case d.Namespace:
		where = "for a namespace, under " + namespacesSection
	case d.File:
		where = "for the whole server"
	}
	r.addf(name, "%s cannot be set here: set it %s", path+d.Name, where)
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

// ReadText is ReadFile for text, without the byte order mark that editors may add.
func ReadText(name string) ([]byte, error) {
	content, err := ReadFile(name)
	return withoutMark(content), err
}

// withoutMark returns text without a byte order mark.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

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
