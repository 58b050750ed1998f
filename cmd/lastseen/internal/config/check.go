package config

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// check reports settings that contradict each other, and those that the store refuses.
func (c *Config) check(e *Error) {
	c.Values.check(e)
	if c.valid("redis-pool-size", "redis-min-idle-conns") &&
		c.RedisPoolSize > 0 && c.RedisMinIdleConns > c.RedisPoolSize {
		e.Addf("%s and %s: redis-min-idle-conns cannot exceed redis-pool-size",
			c.describe("redis-min-idle-conns"), c.describe("redis-pool-size"))
	}
	if c.valid("unknown-namespaces") && c.UnknownNamespaces == RefuseUnknown && len(c.namespaces) == 0 {
		e.Addf("%s: no namespaces are configured, so every request would be refused: add them under %s in the "+
			"configuration file", c.describe("unknown-namespaces"), namespacesSection)
	}
	byKey := map[string]*Values{}
	for _, name := range c.Names() {
		ns := c.namespaces[name]
		ns.check(e)
		ns.checkStore(e)
		if !ns.isSet("redis-key") || !ns.valid("redis-key") {
			continue
		}
		if other, taken := byKey[ns.RedisKey]; taken {
			e.Addf("%s and %s: two namespaces cannot share a key",
				other.describe("redis-key"), ns.describe("redis-key"))
		}
		byKey[ns.RedisKey] = ns
	}
	if len(e.Problems) == 0 && c.OnRedis() {
		c.checkRedis(e)
	}
}

// check reports contradictions between settings of a namespace or of the server, unless the namespace inherits them.
func (s *Values) check(e *Error) {
	changed := func(a, b string) bool { return s.valid(a, b) && (s.server == nil || s.isSet(a) || s.isSet(b)) }
	if changed("green", "yellow") && s.Green >= s.Yellow {
		e.Addf("%s and %s: green must be shorter than yellow", s.describe("green"), s.describe("yellow"))
	}
	if changed("retention", "yellow") && s.Retention != 0 && s.Retention < s.Yellow {
		e.Addf("%s and %s: retention must be off or at least yellow", s.describe("retention"), s.describe("yellow"))
	}
	if s.isSet("redis-key") && s.valid("redis-shards") && s.RedisShards > 1 {
		e.Addf("%s and %s: a namespace with a redis-key has one shard: set redis-shards: 1 for it",
			s.describe("redis-key"), s.describe("redis-shards"))
	}
}

// checkStore reports Redis settings of a namespace in a file store: the namespace would look empty.
func (s *Values) checkStore(e *Error) {
	if s.OnRedis() || !s.valid("store") {
		return
	}
	for _, name := range []string{"redis-key", "redis-score-unit", "redis-shards"} {
		if s.isSet(name) && s.valid(name) {
			e.Addf("%s: this setting requires a Redis store, but %s", s.describe(name), s.describe("store"))
		}
	}
}

// checkRedis reports what the store refuses: an invalid URL, or a key that belongs to something else. The store's
// message about a key starts with the namespace.
func (c *Config) checkRedis(e *Error) {
	err := c.RedisOptions().Validate()
	if err == nil {
		return
	}
	for _, name := range c.Names() {
		if detail, ok := strings.CutPrefix(err.Error(), "namespace "+name+": "); ok {
			e.Addf("%s: %s", c.namespaces[name].get("redis-key").prefix, detail)
			return
		}
	}
	e.Addf("%s: %v", c.get("store").prefix, err)
}

// checkCertificate reports invalid files for TLS.
func (c *Config) checkCertificate(e *Error) {
	if !c.valid("tls-cert", "tls-key") {
		return
	}
	cert, key := c.isSet("tls-cert"), c.isSet("tls-key")
	switch {
	case !cert && !key:
		return
	case !key:
		e.Addf("%s: tls-key is missing: TLS requires both", c.describe("tls-cert"))
		return
	case !cert:
		e.Addf("%s: tls-cert is missing: TLS requires both", c.describe("tls-key"))
		return
	}
	if _, err := ReadCertificate(c.TLSCert, c.TLSKey); err != nil {
		e.Addf("%s and %s: %v", c.describe("tls-cert"), c.describe("tls-key"), err)
	}
}

// ReadCertificate reads a certificate and its private key, both in PEM.
func ReadCertificate(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", certFile, err)
	}
	key, err := ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", keyFile, err)
	}
	return tls.X509KeyPair(cert, key)
}

// warnf adds a warning.
func (c *Config) warnf(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

// warnTightThresholds warns of thresholds at which a single lost ping changes a status.
func (c *Config) warnTightThresholds() {
	all := []*Values{&c.Values}
	for _, name := range c.Names() {
		if ns := c.namespaces[name]; ns.isSet("green") || ns.isSet("ping-interval") {
			all = append(all, ns)
		}
	}
	for _, s := range all {
		if s.valid("green", "ping-interval") && s.Green < 2*s.PingInterval {
			c.warnf("%s and %s: green is less than two ping intervals, so one lost ping turns a user yellow",
				s.describe("green"), s.describe("ping-interval"))
		}
	}
}

// warnExposed warns of settings, and of a data file, that give access to more people than intended. Data files that
// lastseen creates are readable for their owner only.
func (c *Config) warnExposed() {
	u, err := url.Parse(c.JWTJwksURL)
	if c.valid(jwksURL) && err == nil && u.Scheme == "http" && !isLocal(u.Hostname()) {
		c.warnf("%s: without https, an attacker on the network can replace the keys and forge tokens of any user",
			c.describe(jwksURL))
	}
	everyPage := func(name string, values []string) {
		if !c.secured() && c.valid(name) && slices.Contains(values, "*") {
			c.warnf("%s: without keys and JWTs, any web page opened in a browser that reaches this server has full access",
				c.describe(name))
		}
	}
	everyPage("cors-origins", c.CORSOrigins)
	everyPage("allowed-hosts", c.AllowedHosts)
	if c.OnRedis() || !c.valid("store") {
		return
	}
	info, err := os.Stat(c.Store)
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o044 != 0 {
		c.warnf("%s: other users of this machine can read it (mode %04o); run chmod 600 %s",
			c.describe("store"), info.Mode().Perm(), c.Store)
	}
}
