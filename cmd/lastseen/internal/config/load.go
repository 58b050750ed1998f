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

// ListenAddress returns the address that the service listens on, whatever is wrong with other settings. A broken file
// is an error only if neither a flag nor the environment sets the address.
func (l Loader) ListenAddress() (string, error) {
	c, e := l.resolve()
	if c.valid("listen") && (c.isSet("listen") || c.valid("config")) {
		return c.Listen, nil
	}
	return "", e
}

// load returns the values of all settings, and what is wrong with them.
func (l Loader) load() (*Config, *Error) {
	c, e := l.resolve()
	c.check(e)
	c.checkCredentials(e)
	c.warnTightThresholds()
	c.warnExposed()
	return c, e
}

// resolve returns the values of all settings, and what is wrong with each. It applies the strongest source first.
func (l Loader) resolve() (*Config, *Error) {
	c, e := &Config{Values: Values{set: map[string]resolved{}}, namespaces: map[string]*Values{}}, &Error{}
	variables, known := l.variables(), []string{}
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
	file := c.readFile(e)
	c.apply(e, file.values...)
	c.keys = file.keys
	for _, name := range slices.Sorted(maps.Keys(file.namespaces)) {
		c.namespaces[name] = c.inherit()
		c.namespaces[name].apply(e, file.namespaces[name]...)
	}
	return c, e
}

// apply sets values, except those that a stronger source set. All of them must be valid.
func (s *Values) apply(e *Error, values ...resolved) {
	for _, v := range values {
		target := s
		if s.isSet(v.def.Name) {
			target = &Values{set: map[string]resolved{}}
		}
		if err := v.def.parse(&target.Settings, v.text); err != nil {
			v.invalid = true
			e.Addf("%s: %v; use %s", v.prefix, err, v.def.Takes)
		}
		target.set[v.def.Name] = v
	}
}

// variables returns the environment variables that look like settings.
func (l Loader) variables() map[string]string {
	variables := map[string]string{}
	for _, variable := range l.Environ {
		if name, text, _ := strings.Cut(variable, "="); strings.HasPrefix(name, EnvPrefix) {
			variables[name] = text
		}
	}
	return variables
}

// warnUnknown warns of environment variables that look like settings but are not.
func (c *Config) warnUnknown(variables map[string]string, known []string) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if !slices.Contains(known, name) && !setByOthers(name) {
			c.warnf("env %s: unknown setting%s", name, Suggest(name, known))
		}
	}
}

// kubernetes matches the variables that Kubernetes sets for a Service, as in LASTSEEN_REDIS_PORT_6379_TCP.
var kubernetes = regexp.MustCompile(`_PORT(_|$)|_SERVICE_`)

// setByOthers reports whether an environment variable with our prefix is never a setting: Kubernetes sets some for
// Services whose names start with lastseen, and our tests have their own.
func setByOthers(name string) bool {
	return kubernetes.MatchString(name) || strings.HasPrefix(name, EnvPrefix+"TEST_")
}
