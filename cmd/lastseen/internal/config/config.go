// Package config declares the settings of lastseen and resolves their values from flags, the environment and a
// file.
//
// [Settings] declares each setting in one field, whose tags are its definition and in which its value arrives.
// [Loader] resolves all of them into a [Config].
package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lastseen/lastseen/api/auth"
)

// Config is a checked configuration: the settings of the server and of namespaces, and the API keys.
type Config struct {
	Values
	Access   auth.Config // authentication and authorization, by settings and API keys together
	Warnings []string    // what is unusual but not wrong

	namespaces map[string]*Values
	keys       map[string]apiKey
}

// Values are the effective settings of the server or of one namespace, and the source of each.
type Values struct {
	Settings
	path     string // starts names in messages: "" or "namespaces.chat."
	resolved map[string]resolved
}

// resolved is the value of one setting as it was written.
type resolved struct {
	text      string
	source    source
	inherited bool // by a namespace, from the settings of the server
	invalid   bool // the text cannot be read, which is already reported
}

// source is where a value comes from: a flag, an environment variable, a line of the file, or the default.
type source struct {
	via string // "flag", "env" or ""
	at  string // the flag, the variable, "file:line" or "default"
}

// String returns "default", "flag --green", "env LASTSEEN_GREEN" or "lastseen.yaml:3".
func (s source) String() string {
	if s.via == "" {
		return s.at
	}
	return s.via + " " + s.at
}

// prefix starts a message about a setting: flags and environment variables name it, lines of a file do not.
func (s source) prefix(path string) string {
	if s.via == "" {
		return s.at + ": " + path
	}
	return s.at
}

// isSet reports whether the setting is set here, neither inherited nor a default.
func (s *Values) isSet(name string) bool {
	v, ok := s.resolved[name]
	return ok && !v.inherited && v.source.at != "default"
}

// valid reports whether all these settings could be read.
func (s *Values) valid(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return s.resolved[name].invalid })
}

// describe returns a setting's value and source for a message.
func (s *Values) describe(name string) string {
	path := s.path
	if s.resolved[name].inherited {
		path = ""
	}
	return fmt.Sprintf("%s%s is %s (%s)", path, name, s.display(name), s.Source(name))
}

// display returns the value of a setting without secrets.
func (s *Values) display(name string) string {
	d, _ := Find(name)
	return d.display(s.resolved[name].text)
}

// errorPrefix starts an error about the value of a setting.
func (s *Values) errorPrefix(name string) string {
	return s.resolved[name].source.prefix(s.path + name)
}

// Source returns where the value of a setting comes from, for people.
func (s *Values) Source(name string) string { return s.resolved[name].source.String() }

// inherit returns the settings of a namespace that sets none.
func (c *Config) inherit(name string) *Values {
	ns := &Values{Settings: c.Settings, path: namespacesSection + "." + name + ".", resolved: maps.Clone(c.resolved)}
	for name, v := range ns.resolved {
		v.inherited = true
		ns.resolved[name] = v
	}
	return ns
}

// Names returns the configured namespaces in order.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.namespaces)) }

// Configured reports whether the file names a namespace.
func (c *Config) Configured(namespace string) bool { return c.namespaces[namespace] != nil }

// Namespace returns the settings of a namespace, configured or not.
func (c *Config) Namespace(name string) *Values {
	if ns, ok := c.namespaces[name]; ok {
		return ns
	}
	return &c.Values
}
