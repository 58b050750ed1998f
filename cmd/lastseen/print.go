package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/api/auth"
)

// configCmd prints the effective configuration. It takes the flags of serve.
type configCmd struct {
	settings
}

// Run prints the configuration, or fails with all that is wrong with it.
func (*configCmd) Run(_ context.Context, std streams, from sources) error {
	c, err := from.load()
	for _, warning := range c.warnings {
		fmt.Fprintf(std.err, "lastseen: warning: %s\n", warning)
	}
	if err != nil {
		return err
	}
	return c.print(std.out)
}

// print writes the configuration as a file that would make the same one, each value with where it comes
// from. What a namespace inherits is a comment: set there, it would no longer follow the value for all.
func (c *config) print(w io.Writer) error {
	known := definitions()
	var b strings.Builder
	fmt.Fprintf(&b, "# Effective settings of lastseen %s, and where each comes from.\n", version().Version)
	for i, d := range known {
		if i == 0 || d.group != known[i-1].group {
			fmt.Fprintf(&b, "\n# %s\n", d.group)
		}
		if d.file {
			c.printEntry(&b, "", d)
		}
	}
	c.printKeys(&b)
	if len(c.namespaces) > 0 {
		fmt.Fprintf(&b, "\n%s:\n", namespacesKey)
	}
	for _, name := range c.names() {
		fmt.Fprintf(&b, "  %s:\n", quoted(name, true))
		c.namespaces[name].printBody(&b, known)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printKeys writes the API keys. The hash of a key tells nobody the key.
func (c *config) printKeys(b *strings.Builder) {
	if len(c.keys) > 0 {
		fmt.Fprintf(b, "\n%s:\n", keysKey)
	}
	for _, name := range c.keyNames() {
		k := c.keys[name]
		printKey(b, k.Key, " # "+k.origin.String())
	}
}

// printKey writes a key as it stands in a configuration file, below keysKey.
func printKey(w io.Writer, k auth.Key, comment string) {
	fmt.Fprintf(w, "  %s:%s\n    %s: %s\n    %s: %s\n    %s: %s\n",
		quoted(k.Name, true), comment, keyHash, auth.FormatKeyHash(k.Hash), keyScopes, quotedList(k.Scopes), keyNamespaces, quotedList(k.Namespaces))
}

// quotedList writes texts as a list in YAML.
func quotedList[T ~string](items []T) string {
	var texts []string
	for _, item := range items {
		texts = append(texts, quoted(string(item), true))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// printBody writes a namespace's own settings, and those it inherits as comments.
func (s *scope) printBody(b *strings.Builder, known []definition) {
	for _, d := range known {
		switch {
		case !d.namespace:
		case s.own(d.name):
			s.printEntry(b, "    ", d)
		case d.standard != "" && (s.onRedis() || d.group != redisGroup):
			s.printEntry(b, "    # ", d)
		}
	}
}

// printEntry writes one setting, with its origin as a comment.
func (s *scope) printEntry(b *strings.Builder, indent string, d definition) {
	chosen, given := s.chosen[d.name]
	if !given {
		fmt.Fprintf(b, "%s# %s: # not set\n", indent, d.name)
		return
	}
	comment := strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(chosen.origin.String())
	if chosen.inherited {
		comment = "inherited, " + comment
	}
	if chosen.shown != chosen.text {
		comment += ", without passwords and options"
	}
	fmt.Fprintf(b, "%s%s: %s # %s\n", indent, d.name, quoted(chosen.shown, d.text || d.list), comment)
}

// quoted writes a value as YAML, in quotes if it is text that YAML would take for something else.
func quoted(value string, text bool) string {
	node := yaml.Node{Kind: yaml.ScalarNode, Value: value}
	if text {
		node.Tag = "!!str"
	}
	if strings.ContainsAny(value, "\r\n") {
		node.Style = yaml.DoubleQuotedStyle
	}
	out, err := yaml.Marshal(&node)
	if err != nil {
		return fmt.Sprintf("%q", value) // text that YAML cannot hold
	}
	return strings.TrimSuffix(string(out), "\n")
}
