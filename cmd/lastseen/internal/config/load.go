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
	defs, e := Definitions(), &Error{}
	places := l.given(defs)
	file, err := readNamedFile(places, e)
	if err != nil {
		e.Addf("%v", err)
	}
	c := &Config{keys: file.keys, namespaces: map[string]*Values{}}
	c.Values = *resolve(&Values{}, defs, e, append(places, file.values)...)
	for _, name := range slices.Sorted(maps.Keys(file.namespaces)) {
		c.namespaces[name] = resolve(c.inherit(name), defs, e, file.namespaces[name])
	}
	c.check(e)
	c.checkCredentials(e)
	checkMore(c, e)
	c.Warnings = slices.Concat(unknownVariables(l.Environ, defs), c.warnTightThresholds(), c.warnExposed())
	return c, e.Err()
}

// ListenAddress returns the address that the service listens on. It ignores errors in other settings.
func (l Loader) ListenAddress() (string, error) {
	defs, e := Definitions(), &Error{}
	places := l.given(defs)
	if _, given := lookup("listen", places); !given {
		file, err := readNamedFile(places, &Error{})
		if err != nil {
			return "", &Error{[]string{err.Error()}}
		}
		places = append(places, file.values)
	}
	needed := slices.DeleteFunc(slices.Clone(defs), func(d Definition) bool { return d.Name != "config" && d.Name != "listen" })
	return resolve(&Values{}, needed, e, places...).Listen, e.Err()
}

// given returns the values of the flags and of the environment.
func (l Loader) given(defs []Definition) (places []map[string]resolved) {
	flags, environ := map[string]resolved{}, map[string]resolved{}
	for name, text := range l.Flags {
		flags[name] = resolved{text: text, source: source{"flag", "--" + name}}
	}
	for _, variable := range l.Environ {
		key, text, _ := strings.Cut(variable, "=")
		for _, d := range defs {
			if d.Flag && d.Env() == key {
				environ[d.Name] = resolved{text: text, source: source{"env", key}}
			}
		}
	}
	return []map[string]resolved{flags, environ}
}

// lookup returns the value of a setting in the first place that has one.
func lookup(name string, places []map[string]resolved) (resolved, bool) {
	for _, place := range places {
		if v, ok := place[name]; ok {
			return v, true
		}
	}
	return resolved{}, false
}

// readNamedFile reads the file that the setting config names, if any.
func readNamedFile(places []map[string]resolved, e *Error) (fileContent, error) {
	name, _ := lookup("config", places)
	if name.text == "" {
		return fileContent{}, nil
	}
	return (&fileReader{name.text, e}).read(name.source)
}

// resolve sets values from the first place that has them, or to their defaults. Overridden values must be valid,
// too.
func resolve(values *Values, defs []Definition, e *Error, places ...map[string]resolved) *Values {
	if values.resolved == nil {
		values.resolved = map[string]resolved{}
	}
	for _, d := range defs {
		for _, place := range slices.Backward(places) {
			if v, ok := place[d.Name]; ok {
				values.set(d, v, e)
			}
		}
		if _, ok := values.resolved[d.Name]; !ok && d.Default != "" {
			values.set(d, resolved{text: d.Default, source: source{at: "default"}}, e)
		}
	}
	return values
}

// set reads and stores one value.
func (s *Values) set(d Definition, v resolved, e *Error) {
	if err := d.set(&s.Settings, v.text); err != nil {
		v.invalid = true
		e.Addf("%s: %v; use %s", v.source.prefix(s.path+d.Name), err, d.Takes)
	}
	s.resolved[d.Name] = v
}

// unknownVariables warns of environment variables that look like settings but are not.
func unknownVariables(environ []string, defs []Definition) (warnings []string) {
	var names []string
	for _, d := range defs {
		if d.Flag {
			names = append(names, d.Env())
		}
	}
	for _, variable := range environ {
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
