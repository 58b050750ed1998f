// Package config declares the settings of lastseen and resolves their values from flags, the environment and a
// file.
//
// [Settings] declares each setting in one field, whose tags are its definition and in which its value arrives.
// [Loader] resolves all of them into a [Config].
package config

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/lastseen/lastseen/api/auth"
)

// Config is a checked configuration: the settings of the server and of namespaces, and the API keys.
type Config struct {
	Values
	Access   auth.Config // authentication and authorization, by settings and API keys together
	Warnings []string    // what is unusual but not wrong

	namespaces map[string]*Values
	keys       map[string]apiKey
	webhooks   map[string]*webhook
}

// Values are the effective settings of the server or of one namespace, and the source of each.
type Values struct {
	Settings
	set    map[string]resolved // those set here, by setting
	server *Values             // for a namespace, the settings that it inherits
}

// resolved is the text of one setting and its source.
type resolved struct {
	def     Definition
	name    string // of the setting; in a namespace such as namespaces.chat.green
	text    string
	source  string // such as "default", "flag --green", "env LASTSEEN_GREEN" or "lastseen.yaml:3"
	prefix  string // starts an error, such as "--green", "LASTSEEN_GREEN" or "lastseen.yaml:3: green"
	invalid bool   // the text cannot be read, which is already reported
}

// get returns the text of a setting and its source: the one set here, the inherited one, or the default.
func (s *Values) get(name string) resolved {
	if v, ok := s.set[name]; ok {
		return v
	}
	if s.server != nil {
		return s.server.get(name)
	}
	d, _ := Find(name)
	return resolved{def: d, name: name, text: d.Default, source: "default", prefix: name}
}

// display returns the text without secrets.
func (v resolved) display() string {
	switch {
	case v.text == "":
		return "not set"
	case v.def.format.display == nil:
		return v.text
	case v.invalid:
		return "(invalid)" // where a secret would be is unknown
	}
	return v.def.format.display(v.text)
}

// isSet reports whether the setting is set here, neither inherited nor a default.
func (s *Values) isSet(name string) bool {
	_, ok := s.set[name]
	return ok
}

// IsDefault reports whether the setting has its default value because it is not set.
func (s *Values) IsDefault(name string) bool { return s.get(name).source == "default" }

// DrainTime returns how long to serve requests after the signal to stop.
func (c *Config) DrainTime() time.Duration { return c.unlessLocal("drain", c.Drain) }

// ConnectDrainTime returns over which time after the signal to stop WebSocket connections are asked to move to other
// servers.
func (c *Config) ConnectDrainTime() time.Duration {
	return c.unlessLocal("connect-drain", c.ConnectDrain)
}

// unlessLocal returns a time after the signal to stop. A server that only this machine can reach does not wait by
// default: it is usually the only one, and a developer wants it to stop.
func (c *Config) unlessLocal(setting string, wait time.Duration) time.Duration {
	if host, _, _ := net.SplitHostPort(c.Listen); c.IsDefault(setting) && isLocal(host) {
		return 0
	}
	return wait
}

// valid reports whether all these settings could be read.
func (s *Values) valid(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return s.get(name).invalid })
}

// describe returns a setting's value and source for a message.
func (s *Values) describe(name string) string {
	v := s.get(name)
	return fmt.Sprintf("%s is %s (%s)", v.name, v.display(), v.source)
}

// Source returns where the value of a setting comes from, for people.
func (s *Values) Source(name string) string { return s.get(name).source }

// Names returns the configured namespaces in order.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.namespaces)) }

// Configured reports whether the file names a namespace.
func (c *Config) Configured(namespace string) bool { return c.namespaces[namespace] != nil }

// Namespace returns the settings of a namespace, configured or not.
func (c *Config) Namespace(name string) *Values {
	if ns, ok := c.namespaces[name]; ok {
		return ns
	}
	return c.inherit()
}

// inherit returns the settings of a namespace that sets none.
func (c *Config) inherit() *Values {
	return &Values{Settings: c.Settings, set: map[string]resolved{}, server: &c.Values}
}
