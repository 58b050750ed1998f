package config

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/redisstore"
)

// check reports settings that contradict each other, and settings that the store refuses.
func (c *Config) check(e *Error) {
	if c.valid("unknown-namespaces") && c.UnknownNamespaces == RefuseUnknown && len(c.namespaces) == 0 {
		e.Addf("%s: no namespaces are configured, so every request would be refused: add them under %s in the "+
			"configuration file", c.describe("unknown-namespaces"), namespacesSection)
	}
	c.conflict(e.Addf, "max-websockets", "max-connections",
		c.MaxConnections > 0 && c.MaxWebsockets > c.MaxConnections,
		"WebSocket connections are part of max-connections, so max-websockets cannot exceed it")
	scheme, _, _ := strings.Cut(c.Store, ":")
	c.conflict(e.Addf, "redis-read-from", "store",
		c.RedisReadFrom == ReadFromReplica && c.OnRedis() && strings.HasSuffix(strings.ToLower(scheme), "+cluster"),
		"the replicas of a Cluster cannot be read from: set redis-read-from to primary")
	byKey := map[string]*Values{}
	for _, s := range c.all() {
		s.checkValues(e)
		s.conflict(c.warnf, "green", "ping-interval", s.Green < 2*s.PingInterval,
			"green is less than two ping intervals, so one lost ping turns a user yellow")
		if other, taken := byKey[s.RedisKey]; taken && s.RedisKey != "" {
			e.Addf("%s and %s: two namespaces cannot share a key", other.describe("redis-key"), s.describe("redis-key"))
		}
		byKey[s.RedisKey] = s
	}
	c.checkVisibility(e)
	if len(e.Problems) == 0 && c.OnRedis() {
		c.checkRedis(e)
	}
}

// all returns the settings of the server, and those of the namespaces in order.
func (c *Config) all() []*Values {
	all := []*Values{&c.Values}
	for _, name := range c.Names() {
		all = append(all, c.namespaces[name])
	}
	return all
}

// checkValues reports settings of the server or of a namespace that are wrong together, or with the store.
func (s *Values) checkValues(e *Error) {
	s.conflict(e.Addf, "green", "yellow", s.Green >= s.Yellow, "green must be shorter than yellow")
	s.conflict(e.Addf, "retention", "yellow", s.Retention != 0 && s.Retention < s.Yellow,
		"retention must be off or at least yellow")
	s.conflict(e.Addf, "contacts-retention", "yellow", s.ContactsRetention != 0 && s.ContactsRetention < s.Yellow,
		"contacts-retention must be off or at least yellow")
	s.conflict(e.Addf, "contacts-retention", "retention",
		s.ContactsRetention != 0 && s.ContactsRetention < s.Retention,
		"contacts-retention must be off or at least retention")
	s.conflict(e.Addf, "redis-min-idle-conns", "redis-pool-size",
		s.RedisPoolSize > 0 && s.RedisMinIdleConns > s.RedisPoolSize,
		"redis-min-idle-conns cannot exceed redis-pool-size")
	s.conflict(e.Addf, "redis-key", "redis-shards", s.RedisKey != "" && s.RedisShards > 1,
		"a namespace with a redis-key has one shard: set redis-shards: 1 for it")
	if s.OnRedis() && s.Changes == feed.On { // with auto, such a namespace has none
		s.checkSideKeys(e, "changes",
			"a set that other programs can write has no changes feed: set changes to auto or off for it",
			"a changes feed requires a prefix without braces")
	}
	for _, name := range []string{"redis-key", "redis-score-unit", "redis-shards"} {
		// In a file store, such a namespace would look empty.
		if s.server != nil && s.isSet(name) && s.valid(name, "store") && !s.OnRedis() {
			e.Addf("%s: this setting requires a Redis store, but %s", s.describe(name), s.describe("store"))
		}
	}
}

// checkSideKeys reports what cannot have keys besides those of its users in Redis, which a setting requires: sets
// that other programs can write, and all if the prefix has braces.
func (s *Values) checkSideKeys(e *Error, setting, others, braces string) {
	s.conflict(e.Addf, "redis-key", setting, s.RedisKey != "", others)
	s.conflict(e.Addf, "redis-score-unit", setting,
		s.RedisScoreUnit != redisstore.Milliseconds || s.server != nil && s.isSet("redis-score-unit"), others)
	s.conflict(e.Addf, "redis-prefix", setting, strings.ContainsAny(s.RedisPrefix, "{}"), braces)
}

// conflict reports two settings that are wrong together, unless a namespace inherits both.
func (s *Values) conflict(report func(format string, args ...any), a, b string, wrong bool, problem string) {
	if wrong && s.valid(a, b) && (s.server == nil || s.isSet(a) || s.isSet(b)) {
		report("%s and %s: %s", s.describe(a), s.describe(b), problem)
	}
}

// checkRedis reports what the store refuses: an invalid URL, or a key that belongs to something else. The store's
// message about a key starts with the namespace.
func (c *Config) checkRedis(e *Error) {
	err := c.RedisOptions().Validate()
	if err == nil {
		return
	}
	prefix := c.get("store").prefix
	for _, name := range c.Names() {
		if strings.HasPrefix(err.Error(), "namespace "+name+": ") {
			prefix = c.namespaces[name].get("redis-key").prefix
		}
	}
	e.Addf("%s: %v", prefix, err)
}

// checkCertificate reports invalid files for TLS.
func (c *Config) checkCertificate(e *Error) {
	if !c.valid("tls-cert", "tls-key") {
		return
	}
	switch cert, key := c.isSet("tls-cert"), c.isSet("tls-key"); {
	case cert != key:
		e.Addf("%s and %s: TLS requires both", c.describe("tls-cert"), c.describe("tls-key"))
	case cert:
		if _, err := ReadCertificate(c.TLSCert, c.TLSKey); err != nil {
			e.Addf("%s and %s: %v", c.describe("tls-cert"), c.describe("tls-key"), err)
		}
	}
}

// ReadCertificate reads a certificate and its private key, both in PEM.
func ReadCertificate(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := ReadText(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", certFile, err)
	}
	key, err := ReadText(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", keyFile, err)
	}
	return tls.X509KeyPair(cert, key)
}

// warnf adds a warning.
func (c *Config) warnf(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

// warnExposed warns of settings, and of a data file, that give access to more people than intended. Data files that
// lastseen creates are readable for their owner only.
func (c *Config) warnExposed() {
	u, err := url.Parse(c.JWTJwksURL)
	if c.valid(jwksURL) && err == nil && u.Scheme == "http" && !isLocal(u.Hostname()) {
		c.warnf("%s: without https, an attacker on the network can replace the keys and forge tokens of any user",
			c.describe(jwksURL))
	}
	host, _, _ := net.SplitHostPort(c.AdminListen)
	if c.valid("admin-listen") && c.AdminListen != "" && !isLocal(host) {
		c.warnf("%s: anyone who can reach this address can read profiles and all data, because it has no "+
			"authentication: let only monitoring and operators reach it", c.describe("admin-listen"))
	}
	everyPage := func(name string, values []string) {
		if !c.secured() && c.valid(name) && slices.Contains(values, "*") {
			c.warnf("%s: without keys and JWTs, any web page opened in a browser that reaches this server "+
				"has full access", c.describe(name))
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
