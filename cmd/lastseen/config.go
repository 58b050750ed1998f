package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lastseen/lastseen/api/auth"
)

// config is a configuration: the settings for all, those of namespaces, and the API keys.
type config struct {
	scope
	namespaces map[string]*scope
	keys       map[string]apiKey
	access     auth.Config // who may do what, by all of these
	warnings   []string    // what is odd but not wrong
}

// scope is the effective settings for all or for one namespace, and where each comes from.
type scope struct {
	settings
	path   string // what begins names in messages: "" or "namespaces.chat."
	chosen map[string]choice
}

// choice is the value of one setting as it was written.
type choice struct {
	given
	shown     string // as people may see it: without a password
	inherited bool   // by a namespace, from the settings for all
	wrong     bool   // it could not be read; said already
}

// own reports whether the scope sets this itself, and does not take over what holds for all or the default.
func (s *scope) own(name string) bool {
	c, ok := s.chosen[name]
	return ok && !c.inherited && c.origin.kind != fromDefault
}

// fine reports whether all these settings could be read.
func (s *scope) fine(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return s.chosen[name].wrong })
}

// say tells a setting's value and where it comes from.
func (s *scope) say(name string) string {
	c, path := s.chosen[name], s.path
	if c.inherited {
		path = ""
	}
	return fmt.Sprintf("%s%s is %s (%s)", path, name, c.shown, c.origin)
}

// names returns the configured namespaces in order.
func (c *config) names() []string { return slices.Sorted(maps.Keys(c.namespaces)) }

// namespace returns the settings of a namespace, whether it is configured or not.
func (c *config) namespace(name string) *scope {
	if ns, ok := c.namespaces[name]; ok {
		return ns
	}
	return &c.scope
}
