package main

import (
	"fmt"
	"strings"
	"time"
)

// check finds settings that contradict each other, and those that the store refuses.
func (c *config) check(p *problems) {
	c.scope.check(p)
	if c.fine("redis-pool-size", "redis-min-idle-conns") && c.RedisPoolSize > 0 && c.RedisMinIdleConns > c.RedisPoolSize {
		p.addf("%s and %s: redis-min-idle-conns cannot exceed redis-pool-size", c.say("redis-min-idle-conns"), c.say("redis-pool-size"))
	}
	if c.fine("unknown-namespaces") && c.UnknownNamespaces == refuseUnknown && len(c.namespaces) == 0 {
		p.addf("%s: no namespaces are configured, so every request would be refused: add them under %s in the configuration file",
			c.say("unknown-namespaces"), namespacesKey)
	}
	keys := map[string]*scope{}
	for _, name := range c.names() {
		ns := c.namespaces[name]
		ns.check(p)
		ns.checkStore(p)
		if !ns.own("redis-key") || !ns.fine("redis-key") {
			continue
		}
		if other, taken := keys[ns.RedisKey]; taken {
			p.addf("%s and %s: two namespaces cannot share a key", other.say("redis-key"), ns.say("redis-key"))
		}
		keys[ns.RedisKey] = ns
	}
	if len(p.list) == 0 && c.onRedis() {
		c.checkRedis(p)
	}
}

// check finds contradictions within a scope. What a namespace inherits as a whole was checked already.
func (s *scope) check(p *problems) {
	news := func(a, b string) bool { return s.fine(a, b) && (s.path == "" || s.own(a) || s.own(b)) }
	if news("green", "yellow") && s.Green >= s.Yellow {
		p.addf("%s and %s: green must be shorter than yellow", s.say("green"), s.say("yellow"))
	}
	if news("retention", "yellow") && s.Retention != 0 && time.Duration(s.Retention) < time.Duration(s.Yellow) {
		p.addf("%s and %s: retention must be off or at least yellow", s.say("retention"), s.say("yellow"))
	}
	if s.own("redis-key") && s.fine("redis-shards") && s.RedisShards > 1 {
		p.addf("%s and %s: a namespace with a redis-key has one shard: set redis-shards: 1 for it", s.say("redis-key"), s.say("redis-shards"))
	}
}

// checkStore refuses settings of Redis for a namespace that is not on Redis: it would look empty, and
// everyone in it grey.
func (s *scope) checkStore(p *problems) {
	if s.onRedis() || !s.fine("store") {
		return
	}
	for _, name := range []string{"redis-key", "redis-score-unit", "redis-shards"} {
		if s.own(name) && s.fine(name) {
			p.addf("%s: this setting requires a Redis store, but %s", s.say(name), s.say("store"))
		}
	}
}

// checkRedis finds what the store refuses: a wrong URL, or keys that belong to something else.
func (c *config) checkRedis(p *problems) {
	options := c.redisOptions()
	options.Layouts = nil
	if err := options.Validate(); err != nil {
		store := c.chosen["store"]
		p.addf("%s: %v", store.origin.begin("store"), err)
		return
	}
	if err := c.redisOptions().Validate(); err != nil {
		c.wrongKey(p, err)
	}
}

// wrongKey says where the key stands that the store refuses. Its message begins with the namespace; what else
// it checks of namespaces was found before.
func (c *config) wrongKey(p *problems, refused error) {
	for _, name := range c.names() {
		if detail, ok := strings.CutPrefix(refused.Error(), "namespace "+name+": "); ok {
			ns := c.namespaces[name]
			p.addf("%s: %s", ns.chosen["redis-key"].origin.begin(ns.path+"redis-key"), detail)
			return
		}
	}
	p.addf("%s: %v", c.Config, refused)
}

// thin warns of thresholds at which a single lost ping shows.
func (c *config) thin() (warnings []string) {
	scopes := []*scope{&c.scope}
	for _, name := range c.names() {
		if ns := c.namespaces[name]; ns.own("green") || ns.own("ping-interval") {
			scopes = append(scopes, ns)
		}
	}
	for _, s := range scopes {
		if s.fine("green", "ping-interval") && s.Green < 2*s.PingInterval {
			warnings = append(warnings, fmt.Sprintf(
				"%s and %s: green is less than two ping intervals, so one lost ping turns a user yellow",
				s.say("green"), s.say("ping-interval")))
		}
	}
	return warnings
}
