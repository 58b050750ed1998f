package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Loader resolves settings: flags override the environment, which overrides the file that they name, which
// overrides the defaults.
type Loader struct {
	Flags   map[string]string // texts by setting
	Environ []string          // NAME=value
}

// Load returns the configuration. The error is an [*Error] with everything that is wrong; only the warnings of the
// configuration can be used then.
func (l Loader) Load() (*Config, error) {
	c, e := l.load()
	c.checkCertificate(e)
	return c, e.Err()
}

// Reload returns the configuration for a running server. It does not check the certificate, which is reloaded
// separately: a broken one must not keep an API key from being revoked.
func (l Loader) Reload() (*Config, error) {
	c, e := l.load()
	return c, e.Err()
}

// Text returns the value of store, listen or admin-listen, "" if it is off, whatever is wrong with other settings. A
// broken file is an error only if neither a flag nor the environment sets it.
func (l Loader) Text(setting string) (string, error) {
	c, e := l.resolve()
	if c.valid(setting) && (c.isSet(setting) || c.valid("config")) {
		d, _ := Find(setting)
		return d.field(&c.Settings).String(), nil
	}
	return "", e
}

// load returns the values of all settings, and what is wrong with them.
func (l Loader) load() (*Config, *Error) {
	c, e := l.resolve()
	c.check(e)
	c.checkCredentials(e)
	c.checkWebhooks(e)
	c.warnExposed()
	return c, e
}

// resolve returns the values of all settings, and what is wrong with each. It applies the strongest source first.
func (l Loader) resolve() (*Config, *Error) {
	c, e := &Config{
		Values: Values{set: map[string]resolved{}}, namespaces: map[string]*Values{}, keys: map[string]apiKey{},
		webhooks: map[string]*webhook{},
	}, &Error{}
	variables, known := map[string]string{}, []string{}
	for _, variable := range l.Environ {
		name, text, _ := strings.Cut(variable, "=")
		variables[name] = text
	}
	for _, d := range Definitions() {
		if d.Default != "" {
			_ = d.parse(&c.Settings, d.Default) // defaults are valid
		}
		if text, ok := l.Flags[d.Name]; ok {
			c.apply(e, resolved{def: d, name: d.Name, text: text, source: "flag --" + d.Name, prefix: "--" + d.Name})
		}
		if !d.Flag {
			continue
		}
		known = append(known, d.Env())
		if text, ok := variables[d.Env()]; ok {
			c.apply(e, resolved{def: d, name: d.Name, text: text, source: "env " + d.Env(), prefix: d.Env()})
		}
	}
	c.warnUnknown(variables, known)
	c.readFile(e)
	return c, e
}

// apply sets a value, unless a stronger source set it. It must be valid in any case.
func (s *Values) apply(e *Error, v resolved) {
	if s.isSet(v.def.Name) {
		s = &Values{set: map[string]resolved{}}
	}
	if err := v.def.parse(&s.Settings, v.text); err != nil {
		v.invalid = true
		e.Addf("%s: %v; use %s", v.prefix, err, v.def.Takes)
	}
	s.set[v.def.Name] = v
}

// warnUnknown warns of environment variables that look like settings but are not.
func (c *Config) warnUnknown(variables map[string]string, known []string) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if strings.HasPrefix(name, EnvPrefix) && !slices.Contains(known, name) && !setByOthers.MatchString(name) {
			c.warnf("env %s: unknown setting%s", name, Suggest(name, known))
		}
	}
}

// setByOthers matches variables with our prefix that are never settings: those that Kubernetes sets for Services whose
// names start with lastseen, as in LASTSEEN_REDIS_PORT_6379_TCP, and those of our tests.
var setByOthers = regexp.MustCompile(`_PORT(_|$)|_SERVICE_|^LASTSEEN_TEST_`)
