package config

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes the configuration of a lastseen of some version as a file with the same settings, each with its
// source. What a namespace inherits is a comment: set there, it would no longer follow the value of the server.
func (c *Config) Print(w io.Writer, version string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Effective settings of lastseen %s, and where each comes from.\n", version)
	group := ""
	for _, d := range Definitions() {
		if d.Group != group {
			group = d.Group
			fmt.Fprintf(&b, "\n# %s\n", group)
		}
		if d.File {
			c.printEntry(&b, "", d)
		}
	}
	if len(c.keys) > 0 {
		fmt.Fprintf(&b, "\n%s:\n", keysSection)
	}
	for _, k := range c.Access.Keys {
		PrintKey(&b, k, " # "+c.keys[k.Name].source.String())
	}
	if len(c.namespaces) > 0 {
		fmt.Fprintf(&b, "\n%s:\n", namespacesSection)
	}
	for _, name := range c.Names() {
		fmt.Fprintf(&b, "  %s:\n", quoted(name, true))
		c.namespaces[name].printNamespace(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printNamespace writes the settings of a namespace, and those it inherits as comments.
func (s *Values) printNamespace(b *strings.Builder) {
	for _, d := range Definitions() {
		switch {
		case !d.Namespace:
		case s.isSet(d.Name):
			s.printEntry(b, "    ", d)
		case d.Default != "" && (s.OnRedis() || d.Group != redisGroup):
			s.printEntry(b, "    # ", d)
		}
	}
}

// printEntry writes one setting, with its source as a comment.
func (s *Values) printEntry(b *strings.Builder, indent string, d Definition) {
	v, ok := s.resolved[d.Name]
	if !ok {
		fmt.Fprintf(b, "%s# %s: # not set\n", indent, d.Name)
		return
	}
	comment := strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(v.source.String())
	if v.inherited {
		comment = "inherited, " + comment
	}
	shown := d.display(v.text)
	if shown != v.text {
		comment += ", without passwords and options"
	}
	fmt.Fprintf(b, "%s%s: %s # %s\n", indent, d.Name, quoted(shown, d.format.text || d.list), comment)
}

// quoted returns a value in YAML, in quotes if YAML would read the text as something else.
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
