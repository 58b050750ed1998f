package config

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// check reports settings that contradict each other, and settings that the store refuses.
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
	changed := func(a, b string) bool { return s.valid(a, b) && (s.path == "" || s.isSet(a) || s.isSet(b)) }
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

// checkRedis reports what the store refuses: an invalid URL, or keys that belong to something else.
func (c *Config) checkRedis(e *Error) {
	options := c.RedisOptions()
	options.Layouts = nil
	if err := options.Validate(); err != nil {
		e.Addf("%s: %v", c.errorPrefix("store"), err)
	} else if err := c.RedisOptions().Validate(); err != nil {
		c.reportKey(e, err)
	}
}

// reportKey reports a key that the store refuses, with its place. The store's message starts with the namespace.
func (c *Config) reportKey(e *Error, refused error) {
	for _, name := range c.Names() {
		if detail, ok := strings.CutPrefix(refused.Error(), "namespace "+name+": "); ok {
			e.Addf("%s: %s", c.namespaces[name].errorPrefix("redis-key"), detail)
			return
		}
	}
	e.Addf("%s: %v", c.Config, refused)
}

// checkCertificate reports invalid files for TLS.
func (c *Config) checkCertificate(e *Error) {
	if !c.valid("tls-cert", "tls-key") {
		return
	}
	for _, pair := range [][2]string{{"tls-cert", "tls-key"}, {"tls-key", "tls-cert"}} {
		if c.isSet(pair[0]) && !c.isSet(pair[1]) {
			e.Addf("%s: %s is missing: TLS requires both", c.describe(pair[0]), pair[1])
			return
		}
	}
	if !c.isSet("tls-cert") {
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
