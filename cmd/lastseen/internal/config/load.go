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
func (l Loader) Load() (*Config, error) { return l.load((*Config).checkCertificate) }

// Reload returns the configuration for a running server. It does not check the certificate, which is reloaded
// separately: a broken one must not keep an API key from being revoked.
func (l Loader) Reload() (*Config, error) { return l.load(func(*Config, *Error) {}) }

func (l Loader) load(checkMore func(*Config, *Error)) (*Config, error) {
	c, e := l.resolve()
	c.check(e)
	c.checkCredentials(e)
	checkMore(c, e)
	c.Warnings = slices.Concat(l.unknownVariables(), c.warnTightThresholds(), c.warnExposed())
	return c, e.Err()
}

// ListenAddress returns the address that the service listens on, whatever is wrong with other settings. It reads the
// file only if neither a flag nor the environment sets the address.
func (l Loader) ListenAddress() (string, error) {
	c, e := l.resolveProcess()
	if !c.isSet("listen") {
		c.apply(in(c.readFile(e).values), e)
		c.apply(byDefault, e)
	}
	if c.valid("listen", "config") {
		return c.Listen, nil
	}
	return "", e
}

// resolve returns the values of all settings, and the errors in single ones.
func (l Loader) resolve() (*Config, *Error) {
	c, e := l.resolveProcess()
	file := c.readFile(e)
	c.apply(in(file.values), e)
	c.apply(byDefault, e)
	for _, name := range slices.Sorted(maps.Keys(file.namespaces)) {
		c.namespaces[name] = c.inherit(name)
		c.namespaces[name].apply(in(file.namespaces[name]), e)
	}
	c.keys = file.keys
	return c, e
}

// resolveProcess returns the values of the flags and of the environment.
func (l Loader) resolveProcess() (*Config, *Error) {
	e, c := &Error{}, &Config{Values: Values{resolved: map[string]resolved{}}, namespaces: map[string]*Values{}}
	c.apply(l.flag, e)
	c.apply(l.variable, e)
	return c, e
}

// apply sets the values of one source, except those that a stronger source set. All of them must be valid.
func (s *Values) apply(value func(Definition) (resolved, bool), e *Error) {
	for _, d := range Definitions() {
		v, ok := value(d)
		if !ok {
			continue
		}
		target := s
		if former, ok := s.resolved[d.Name]; ok && !former.inherited {
			target = &Values{resolved: map[string]resolved{}}
		}
		if err := d.set(&target.Settings, v.text); err != nil {
			v.invalid = true
			e.Addf("%s: %v; use %s", v.source.prefix(s.path+d.Name), err, d.Takes)
		}
		target.resolved[d.Name] = v
	}
}

func (l Loader) flag(d Definition) (resolved, bool) {
	text, ok := l.Flags[d.Name]
	return resolved{text: text, source: source{"flag", "--" + d.Name}}, ok
}

func (l Loader) variable(d Definition) (resolved, bool) {
	for _, variable := range l.Environ {
		if text, ok := strings.CutPrefix(variable, d.Env()+"="); ok && d.Flag {
			return resolved{text: text, source: source{"env", d.Env()}}, true
		}
	}
	return resolved{}, false
}

func byDefault(d Definition) (resolved, bool) {
	return resolved{text: d.Default, source: source{at: "default"}}, d.Default != ""
}

// in returns the values of a section of the file.
func in(section map[string]resolved) func(Definition) (resolved, bool) {
	return func(d Definition) (resolved, bool) {
		v, ok := section[d.Name]
		return v, ok
	}
}

// unknownVariables warns of environment variables that look like settings but are not.
func (l Loader) unknownVariables() (warnings []string) {
	var names []string
	for _, d := range Definitions() {
		if d.Flag {
			names = append(names, d.Env())
		}
	}
	for _, variable := range l.Environ {
		key, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(key, EnvPrefix) && !slices.Contains(names, key) && !setByOthers(key) {
			warnings = append(warnings, "env "+key+": unknown setting"+Suggest(key, names))
		}
	}
	return warnings
}

// kubernetes matches the variables that Kubernetes sets for a Service, as in LASTSEEN_REDIS_PORT_6379_TCP.
var kubernetes = regexp.MustCompile(`_PORT(_|$)|_SERVICE_`)

// setByOthers reports whether an environment variable with our prefix is never a setting: Kubernetes sets some for
// Services whose names start with lastseen, and our tests have their own.
func setByOthers(key string) bool {
	return kubernetes.MatchString(key) || strings.HasPrefix(key, EnvPrefix+"TEST_")
}
