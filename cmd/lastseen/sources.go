package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// sources are where settings come from, beside the file that they name.
type sources struct {
	flags   map[string]string // by setting
	environ []string          // NAME=value
}

// load returns the configuration. The error tells everything that is wrong with it; only its warnings can
// be used then.
func (s sources) load() (*config, error) { return s.read((*config).checkCertificate) }

// reload returns the configuration for a server that runs. The certificate does not matter to it: that is renewed by
// itself, and one that is broken must not stand in the way of taking a key back.
func (s sources) reload() (*config, error) { return s.read(func(*config, *problems) {}) }

func (s sources) read(more func(*config, *problems)) (*config, error) {
	known := definitions()
	var p problems
	outer := []map[string]given{s.fromFlags(), s.fromEnviron(known)}
	c := &config{namespaces: map[string]*scope{}}
	c.scope = *choose(newScope(), known, &problems{}, outer...)
	file := configFile{}
	if c.Config != "" {
		var err error
		if file, err = (&fileReader{c.Config, c.chosen["config"].origin, known, &p}).read(); err != nil {
			p.addf("%v", err)
		}
	}
	c.scope = *choose(newScope(), known, &p, append(outer, file.values)...)
	for _, name := range slices.Sorted(maps.Keys(file.namespaces)) {
		c.namespaces[name] = c.inherit(name, known, file.namespaces[name], &p)
	}
	c.keys = file.keys
	c.check(&p)
	c.credentials(&p)
	more(c, &p)
	c.warnings = slices.Concat(unknownVariables(s.environ, known), c.thin(), c.exposed())
	return c, p.err()
}

// listen returns the address that the service listens on, for commands that call it. What else may be wrong
// with the settings does not matter to them.
func (s sources) listen() (string, error) {
	known := definitions()
	address, _ := find(known, "listen")
	file, _ := find(known, "config")
	needed := []definition{file, address}
	places := []map[string]given{s.fromFlags(), s.fromEnviron(known)}
	var p problems
	chosen := choose(newScope(), needed, &problems{}, places...)
	if !chosen.own("listen") && chosen.Config != "" {
		read, err := (&fileReader{chosen.Config, chosen.chosen["config"].origin, known, &problems{}}).read()
		if err != nil {
			return "", &settingsError{[]string{err.Error()}}
		}
		places = append(places, read.values)
	}
	chosen = choose(newScope(), needed, &p, places...)
	return string(chosen.Listen), p.err()
}

// inherit returns a namespace's settings: its own ones, and for the rest those for all.
func (c *config) inherit(name string, known []definition, own map[string]given, p *problems) *scope {
	ns := &scope{settings: c.settings, path: namespacesKey + "." + name + ".", chosen: map[string]choice{}}
	for setting, chosen := range c.chosen {
		chosen.inherited = true
		ns.chosen[setting] = chosen
	}
	return choose(ns, known, p, own)
}

// choose sets a scope's settings from what was given, the first place that gives one winning, or from the
// default. All that was given has to be right, also what does not win.
func choose(s *scope, known []definition, p *problems, places ...map[string]given) *scope {
	for _, d := range known {
		for _, place := range slices.Backward(places) {
			if g, ok := place[d.name]; ok {
				err := d.set(&s.settings, g.text)
				s.chosen[d.name] = choice{given: g, shown: d.shown(g.text), wrong: err != nil}
				if err != nil {
					p.addf("%s: %v; use %s", g.origin.begin(s.path+d.name), err, d.takes)
				}
			}
		}
		if _, ok := s.chosen[d.name]; !ok && d.standard != "" {
			err := d.set(&s.settings, d.standard) // a test holds that it cannot fail
			s.chosen[d.name] = choice{given: given{d.standard, origin{kind: fromDefault}}, shown: d.standard, wrong: err != nil}
		}
	}
	return s
}

func newScope() *scope { return &scope{chosen: map[string]choice{}} }

func (s sources) fromFlags() map[string]given {
	values := map[string]given{}
	for name, text := range s.flags {
		values[name] = given{text, origin{fromFlag, "--" + name}}
	}
	return values
}

// flagOr returns the text of a flag that is no setting, or what holds without it.
func (s sources) flagOr(name, otherwise string) string {
	if text, ok := s.flags[name]; ok {
		return text
	}
	return otherwise
}

func (s sources) fromEnviron(known []definition) map[string]given {
	values := map[string]given{}
	for _, variable := range s.environ {
		key, text, _ := strings.Cut(variable, "=")
		for _, d := range known {
			if d.flag && d.env() == key {
				values[d.name] = given{text, origin{fromEnv, key}}
			}
		}
	}
	return values
}

// unknownVariables warns of environment variables that look like settings and are none.
func unknownVariables(environ []string, known []definition) (warnings []string) {
	var names []string
	for _, d := range known {
		if d.flag {
			names = append(names, d.env())
		}
	}
	for _, variable := range environ {
		key, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(key, envPrefix) && !slices.Contains(names, key) && !notOurs(key) {
			warnings = append(warnings, "env "+key+": unknown setting"+suggest(key, names))
		}
	}
	return warnings
}

// kubernetes matches the variables that Kubernetes sets for a Service, as in LASTSEEN_REDIS_PORT_6379_TCP.
var kubernetes = regexp.MustCompile(`_PORT(_|$)|_SERVICE_`)

// notOurs reports whether an environment variable with our prefix is none of ours: Kubernetes sets some for
// Services whose names begin with lastseen, and our tests have their own.
func notOurs(key string) bool {
	return kubernetes.MatchString(key) || strings.HasPrefix(key, envPrefix+"TEST_")
}
