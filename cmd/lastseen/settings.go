package main

import (
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store/redisstore"
)

// This file is the one definition of every setting. Flags, environment variables, the keys of the
// configuration file, the help, `lastseen config` and the table in docs/configuration.md derive from it.
//
// The name is the field's: PingInterval is --ping-interval, LASTSEEN_PING_INTERVAL and ping-interval; TLSCert is
// --tls-cert. Tags:
//
//	help         what it is
//	group        under which heading it stands
//	placeholder  what stands for its value
//	default      the value unless set
//	min, max     bounds; durations are at least 1ms unless min is 0, and at most 10 years
//	takes        what it accepts, where the type and the bounds do not tell
//	in           where it can be set, of flag (and environment), file, namespace; by default flag,file
//	reload       whether it can change while the service runs
//	secret       whether its value may hold a password
//
// A type of its own says how it reads a text by a method set; see values.go.

// processSettings are those that more than one command needs.
type processSettings struct {
	Config string  `in:"flag" group:"Service" takes:"a file" placeholder:"FILE" help:"Configuration file in YAML, with these settings by the same names, and namespaces."`
	Listen address `group:"Service" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address to listen on. One that others can reach takes keys, JWTs or auth none."`
}

// settings are all that can be set, for the service or for one namespace.
type settings struct {
	processSettings
	Store string `group:"Service" default:"lastseen.db" secret:"" takes:"a file, or a URL as in redis://host:6379" placeholder:"FILE|URL" help:"Where the data is: a file, or redis://[user:password@]host:port[/db], redis+sentinel://host,host?master=NAME, redis+cluster://host,host, or rediss… for TLS."`

	LogLevel logLevel `reload:"" group:"Service" default:"info" placeholder:"LEVEL" help:"What the log tells at least. With debug, also why credentials are refused."`

	Auth               authMode  `reload:"" group:"Access" default:"auto" placeholder:"auto|none" help:"With auto, callers need a key or a JWT once any is configured; without, anyone may do everything, but listening is for this machine only. With none, anyone may do everything from anywhere."`
	AnonymousRead      patterns  `reload:"" group:"Access" placeholder:"NAMESPACE,…" help:"Namespaces that anyone may read without credentials."`
	JWTSecretFile      string    `reload:"" group:"Access" takes:"a file" placeholder:"FILE" help:"The secret of JWTs signed with HS256, at least 32 bytes. A newline after text does not count."`
	JWTKeysFile        string    `reload:"" group:"Access" takes:"a file" placeholder:"FILE" help:"Public keys in PEM, of JWTs signed with RS256, ES256 or EdDSA."`
	JWTJwksURL         keySetURL `reload:"" group:"Access" placeholder:"URL" help:"Where the key set (JWKS) of JWTs signed with RS256, ES256 or EdDSA is."`
	JWTIssuer          string    `reload:"" group:"Access" placeholder:"TEXT" help:"Issuer (iss) that JWTs have to name. Needed for JWTs."`
	JWTAudience        string    `reload:"" group:"Access" placeholder:"TEXT" help:"Audience (aud) that JWTs have to name. Needed for JWTs."`
	JWTLeeway          duration  `reload:"" group:"Access" default:"30s" min:"0" placeholder:"DURATION" help:"How far the clocks of the issuer and of lastseen may differ."`
	JWTUserClaim       string    `reload:"" group:"Access" default:"sub" placeholder:"NAME" help:"Claim that holds the user for whom a JWT is."`
	JWTNamespacesClaim string    `reload:"" group:"Access" default:"namespaces" placeholder:"NAME" help:"Claim that holds the namespaces a JWT is for: a list, or text with spaces between."`
	JWTNamespaces      patterns  `reload:"" group:"Access" placeholder:"NAMESPACE,…" help:"Namespaces of JWTs without that claim."`

	RateLimit      rate     `reload:"" group:"Limits" default:"5000" placeholder:"N" help:"Requests a second of one API key, or of one address without a key or a JWT; or off. Five seconds' worth can come at once."`
	UserRateLimit  rate     `reload:"" group:"Limits" default:"20" placeholder:"N" help:"Requests a second of the user of a JWT; or off. Five seconds' worth can come at once."`
	TrustedProxies networks `group:"Limits" placeholder:"ADDRESS,…" help:"Proxies whose X-Forwarded-For tells the caller's address."`
	CORSOrigins    origins  `reload:"" group:"Browsers" placeholder:"ORIGIN,…" help:"Origins whose pages may call from a browser (CORS); * for any."`

	TLSCert string `group:"TLS" takes:"a file" placeholder:"FILE" help:"Certificate and those between it and its authority, in PEM. Read again when it changes."`
	TLSKey  string `group:"TLS" takes:"a file" placeholder:"FILE" help:"Private key of the certificate, in PEM. Read again when it changes."`

	Green        duration `in:"flag,file,namespace" reload:"" group:"Statuses" default:"60s" takes:"a duration shorter than yellow" placeholder:"DURATION" help:"Age at which a user turns from green to yellow."`
	Yellow       duration `in:"flag,file,namespace" reload:"" group:"Statuses" default:"5m" takes:"a duration longer than green" placeholder:"DURATION" help:"Age at which a user turns from yellow to grey."`
	PingInterval duration `in:"flag,file,namespace" reload:"" group:"Statuses" default:"30s" placeholder:"DURATION" help:"How often clients are told to ping; at most half of green is wise."`

	Retention retention `in:"flag,file,namespace" reload:"" group:"Retention" default:"off" takes:"off, or a duration of at least yellow" placeholder:"DURATION" help:"Erase users not seen for so long; or off."`

	Sync duration `group:"File store" default:"1s" min:"0" placeholder:"DURATION" help:"Time between flushes to the disk, the most that a crash can lose. 0 answers every write after its flush."`

	RedisPrefix       string          `group:"Redis store" default:"presence:" placeholder:"TEXT" help:"What every key begins with."`
	RedisKey          string          `in:"namespace" kong:"-" group:"Redis store" help:"Key of a sorted set that other programs may write, too, instead of the prefix and the namespace's name."`
	RedisScoreUnit    redisstore.Unit `in:"flag,file,namespace" group:"Redis store" default:"ms" placeholder:"ms|s" help:"Unit of scores. Set for a namespace, it says that other programs write the set, too."`
	RedisShards       int             `in:"flag,file,namespace" group:"Redis store" default:"1" min:"1" max:"64" placeholder:"N" help:"Sorted sets that a namespace is spread over."`
	RedisTimeout      duration        `group:"Redis store" default:"250ms" placeholder:"DURATION" help:"Limit of one call, connecting and retrying included."`
	RedisDialTimeout  duration        `group:"Redis store" default:"200ms" placeholder:"DURATION" help:"Limit of one attempt to connect."`
	RedisPoolSize     int             `group:"Redis store" default:"0" min:"0" max:"10000" placeholder:"N" help:"Connections at most, to each Redis; 0 for 10 a processor, 5 in a Cluster."`
	RedisMinIdleConns int             `group:"Redis store" default:"0" min:"0" max:"10000" placeholder:"N" help:"Connections kept open when idle, to each Redis."`
	RedisMaxRetries   int             `group:"Redis store" default:"1" min:"0" max:"100" placeholder:"N" help:"Times a call is repeated after a network error."`
}

// redisGroup is the heading of settings that only a store on Redis has.
const redisGroup = "Redis store"

// onRedis reports whether the store is a Redis and not a file.
func (s *settings) onRedis() bool { return strings.Contains(s.Store, "://") }

func (s *settings) thresholds() lastseen.Thresholds {
	return lastseen.Thresholds{Green: time.Duration(s.Green), Yellow: time.Duration(s.Yellow)}
}

// forAPI returns the settings that callers see.
func (s *settings) forAPI() api.Settings {
	shards := 1
	if s.onRedis() {
		shards = s.RedisShards
	}
	return api.Settings{
		Thresholds: s.thresholds(), PingInterval: time.Duration(s.PingInterval),
		Retention: time.Duration(s.Retention), Shards: shards,
	}
}

// redisOptions returns the options of the store on Redis.
func (c *config) redisOptions() redisstore.Options {
	maxRetries := c.RedisMaxRetries
	if maxRetries == 0 {
		maxRetries = -1 // zero would mean the client's default
	}
	return redisstore.Options{
		URL: c.Store, Prefix: c.RedisPrefix, Shards: c.RedisShards, Unit: c.RedisScoreUnit, Layouts: c.layouts(),
		Timeout: time.Duration(c.RedisTimeout), DialTimeout: time.Duration(c.RedisDialTimeout),
		PoolSize: c.RedisPoolSize, MinIdleConns: c.RedisMinIdleConns, MaxRetries: maxRetries,
	}
}

// layouts returns the layouts of the namespaces that have one of their own. A field is set only if the
// namespace sets it: a unit that is set declares that other programs write the set, too.
func (c *config) layouts() map[string]redisstore.Layout {
	layouts := map[string]redisstore.Layout{}
	for name, ns := range c.namespaces {
		var l redisstore.Layout
		if ns.own("redis-key") {
			l.Key = ns.RedisKey
		}
		if ns.own("redis-score-unit") {
			l.Unit = ns.RedisScoreUnit
		}
		if ns.own("redis-shards") {
			l.Shards = ns.RedisShards
		}
		if l != (redisstore.Layout{}) {
			layouts[name] = l
		}
	}
	return layouts
}
