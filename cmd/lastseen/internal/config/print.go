package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
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
			fmt.Fprint(&b, c.get(d.Name).entry(""))
		}
	}
	if len(c.keys) > 0 {
		fmt.Fprintf(&b, "\n%s:\n", keysSection)
	}
	for _, k := range c.Access.Keys {
		PrintKey(&b, k, " # "+c.keys[k.Name].source)
	}
	if len(c.webhooks) > 0 {
		fmt.Fprintf(&b, "\n# %s: # their URLs can be secrets, and are not shown\n", webhooksSection)
	}
	for _, name := range slices.Sorted(maps.Keys(c.webhooks)) {
		c.webhooks[name].print(&b, name)
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
		v := s.get(d.Name)
		switch {
		case !d.Namespace:
		case s.isSet(d.Name):
			b.WriteString("    " + v.entry(""))
		case d.Default != "" && (s.OnRedis() || d.Group != redisGroup):
			b.WriteString("    # " + v.entry("inherited, "))
		}
	}
}

// entry returns the line of a setting, with its source as a comment.
func (v resolved) entry(comment string) string {
	if v.text == "" {
		return "# " + v.def.Name + ": # not set\n"
	}
	comment += strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(v.source)
	shown := v.display()
	if shown != v.text {
		comment += ", without passwords and options"
	}
	return fmt.Sprintf("%s: %s # %s\n", v.def.Name, quoted(shown, v.def.format.text || v.def.list), comment)
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
