package config

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/redisstore"
)

// The name of a setting is the field's: PingInterval is --ping-interval, LASTSEEN_PING_INTERVAL and ping-interval.
// Beside help and group, its tags are:
//
//	placeholder  what stands for its value; the choices of an enum
//	default      the value unless set
//	format       how its text is read, if the type does not say that; see [formats]
//	min, max     bounds of a number or a duration
//	zero         the words that stand for 0
//	takes        what it accepts, if the format and the bounds do not say that
//	in           where it can be set, of flag (and environment), file, namespace; by default flag,file
//	reload       whether it can change while the service runs

// CommonSettings are the settings that other commands than serve and config also need.
type CommonSettings struct {
	FileSettings
	Listen string `format:"address" group:"Service" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address to listen on. A non-loopback address requires API keys, JWTs or auth none."`
}

// FileSettings names the file of all other settings.
type FileSettings struct {
	Config string `in:"flag" group:"Service" takes:"a file" placeholder:"FILE" help:"YAML file with settings under the same names, and with namespaces and API keys."`
}

// AdminSettings are the settings of the commands that call a running server.
type AdminSettings struct {
	AdminListen string `format:"address" zero:"off" takes:"HOST:PORT, :PORT for all addresses, or off" group:"Service" default:"127.0.0.1:8081" placeholder:"HOST:PORT" help:"Address for operators: metrics, profiles, health and backups. It has no authentication, so anyone who can reach it can read all data. off disables it."`
}

// StoreSettings say where the data is.
type StoreSettings struct {
	Store string `format:"store" group:"Service" default:"lastseen.db" takes:"a file, or a URL such as redis://host:6379" placeholder:"FILE|URL" help:"Where to store data: a file, redis://[user:password@]host:port[/db], redis+sentinel://host,host?master=NAME or redis+cluster://host,host. For TLS, start the URL with rediss."`
}

// Settings are all settings of the server or of one namespace.
type Settings struct {
	CommonSettings
	AdminSettings
	StoreSettings

	Drain time.Duration `group:"Service" default:"2s" zero:"0,0s" placeholder:"DURATION" help:"Time after SIGTERM in which requests are still served while /readyz fails and responses close their connections, so that load balancers and clients move to other servers. A server on a loopback address drains only if this is set."`

	LogLevel  slog.Level `reload:"" group:"Service" default:"info" placeholder:"LEVEL" help:"Lowest level to log. At debug, the log has the reason for each refused request."`
	LogFormat string     `format:"enum" group:"Service" default:"text" placeholder:"text|json" help:"Log format: text for people, json for one JSON object per line."`
	AccessLog bool       `reload:"" group:"Service" default:"off" placeholder:"on|off" help:"Log each request at level info: method, route, status, duration, caller and request ID. Namespace names and user IDs are not logged."`

	TraceEndpoint string `format:"collector" group:"Service" placeholder:"URL" help:"Collector to send traces to, by OTLP over HTTP. Traces have routes and timings, but no names of namespaces or users. The environment variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_HEADERS, also apply."`
	TraceSampling int    `group:"Service" default:"100" min:"1" max:"1000000" placeholder:"N" help:"Trace one request in N."`

	Auth               string         `format:"enum" reload:"" group:"Access" default:"auto" placeholder:"auto|none" help:"Whether requests need credentials. With auto, they need an API key or a JWT if any is configured; otherwise every request has full access, and lastseen listens on loopback addresses only. With none, anyone who can reach the server has full access."`
	AnonymousRead      []auth.Pattern `reload:"" group:"Access" placeholder:"NAMESPACE,…" help:"Namespaces that anyone can read without credentials."`
	JWTSecretFile      string         `reload:"" group:"Access" takes:"a file" placeholder:"FILE" help:"File with the secret for JWTs signed with HS256, at least 32 bytes. A newline at the end of a text file is ignored."`
	JWTKeysFile        string         `reload:"" group:"Access" takes:"a file" placeholder:"FILE" help:"File with the public keys, in PEM, for JWTs signed with RS256, ES256 or EdDSA."`
	JWTJwksURL         string         `format:"key-set" reload:"" group:"Access" placeholder:"URL" help:"URL of the key set (JWKS) for JWTs signed with RS256, ES256 or EdDSA."`
	JWTIssuer          string         `reload:"" group:"Access" placeholder:"TEXT" help:"Issuer that JWTs must name (iss). Required for JWTs."`
	JWTAudience        string         `reload:"" group:"Access" placeholder:"TEXT" help:"Audience that JWTs must name (aud). Required for JWTs."`
	JWTLeeway          time.Duration  `max:"5m" reload:"" group:"Access" default:"30s" zero:"0,0s" takes:"0, or a duration up to 5m" placeholder:"DURATION" help:"Allowed difference between the clocks of the issuer and of lastseen."`
	JWTUserClaim       string         `reload:"" group:"Access" default:"sub" placeholder:"NAME" help:"JWT claim that holds the user ID."`
	JWTNamespacesClaim string         `reload:"" group:"Access" default:"namespaces" placeholder:"NAME" help:"JWT claim that holds the namespaces: a list, or a text separated by spaces."`
	JWTNamespaces      []auth.Pattern `reload:"" group:"Access" placeholder:"NAMESPACE,…" help:"Namespaces of JWTs without the namespaces claim."`

	RateLimit            int            `zero:"off" max:"1000000" reload:"" group:"Limits" default:"5000" placeholder:"N" help:"Requests per second for each API key, and for each IP address that sends no valid credentials. A burst can hold the requests of five seconds. off disables the limit."`
	UserRateLimit        int            `zero:"off" max:"1000000" reload:"" group:"Limits" default:"20" placeholder:"N" help:"Requests per second for each user with a JWT. A burst can hold the requests of five seconds. off disables the limit."`
	BodyMemory           int64          `format:"size" group:"Limits" default:"64MiB" placeholder:"SIZE" help:"Memory limit for the bodies of all requests in progress."`
	MaxConnections       int            `zero:"auto" max:"10000000" group:"Limits" default:"auto" placeholder:"N" help:"Maximum number of client connections. With auto, the limit of open files less a reserve, and at most 65536."`
	MaxWatches           int            `max:"1000000000" group:"Limits" default:"5000000" placeholder:"N" help:"Maximum number of users that all clients of this server follow together in the changes feeds. A client that follows everyone counts as one. More requests return 503 overloaded."`
	MaxWebhookNamespaces int            `max:"10000" reload:"" group:"Limits" default:"1000" placeholder:"N" help:"Maximum number of namespaces that one webhook delivers."`
	TrustedProxies       []netip.Prefix `group:"Limits" placeholder:"ADDRESS,…" help:"Proxies whose X-Forwarded-For header is trusted to name the client's address."`
	CORSOrigins          []string       `format:"origins" reload:"" group:"Browsers" placeholder:"ORIGIN,…" help:"Origins whose web pages can call the API (CORS): https://app.example.com, https://*.example.com, http://localhost:*, or * for any origin."`
	AllowedHosts         []string       `format:"hosts" reload:"" group:"Browsers" placeholder:"HOST,…" help:"Additional host names to serve without authentication. IP addresses, localhost, names without a dot, and names in .localhost, .local, .internal and .svc.cluster.local are always allowed. *.example.com matches every name below example.com, * matches any name."`

	TLSCert string `group:"TLS" takes:"a file" placeholder:"FILE" help:"Certificate in PEM, followed by its intermediate certificates. Reloaded when it changes."`
	TLSKey  string `group:"TLS" takes:"a file" placeholder:"FILE" help:"Private key of the certificate in PEM. Reloaded when it changes."`

	Green        time.Duration `in:"flag,file,namespace" reload:"" group:"Statuses" default:"60s" takes:"a duration shorter than yellow" placeholder:"DURATION" help:"Age at which a user turns from green to yellow."`
	Yellow       time.Duration `in:"flag,file,namespace" reload:"" group:"Statuses" default:"5m" takes:"a duration longer than green" placeholder:"DURATION" help:"Age at which a user turns from yellow to grey."`
	PingInterval time.Duration `in:"flag,file,namespace" reload:"" group:"Statuses" default:"30s" placeholder:"DURATION" help:"How often clients should ping. Use at most half of green."`

	MaxNamespaces     int    `group:"Namespaces" default:"100000" min:"0" max:"10000000" placeholder:"N" help:"Maximum number of namespaces. A ping or leave that would create another one returns 503 store_full. Configured namespaces are always created. 0 disables the limit."`
	UnknownNamespaces string `format:"enum" reload:"" group:"Namespaces" default:"allow" placeholder:"allow|refuse" help:"With refuse, requests to a namespace that is not in the configuration file return 404 not_found. Deleting it remains possible."`

	Visibility api.Visibility `format:"enum" in:"flag,file,namespace" reload:"" group:"Namespaces" default:"everyone" placeholder:"everyone|contacts" help:"Who sees the users of a namespace. With contacts, a user with a JWT sees only users who have that user among their contacts, and everyone else as if never seen. API keys see everyone. contacts requires API keys or JWTs, and excludes anonymous-read."`

	DisconnectGrace      time.Duration `max:"1m" reload:"" group:"WebSockets" default:"5s" zero:"0,0s" takes:"0, or a duration up to 1m" placeholder:"DURATION" help:"Time after the end of a connection until its user's leave is recorded, so that a reload of a page or a change of networks is not a leave. A client can ask for another time, up to a minute."`
	ConnectDrain         time.Duration `max:"10m" group:"WebSockets" default:"30s" zero:"0,0s" takes:"0, or a duration up to 10m" placeholder:"DURATION" help:"Time after SIGTERM over which WebSocket connections are asked to move to another server. Without any, lastseen does not wait for it. A server on a loopback address waits only if this is set."`
	MaxWebsockets        int           `zero:"auto" max:"10000000" group:"WebSockets" default:"auto" placeholder:"N" help:"Maximum number of WebSocket connections, which are part of max-connections. With auto, max-connections less a reserve for other requests."`
	MaxUserWebsockets    int           `max:"10000" group:"WebSockets" default:"16" placeholder:"N" help:"Maximum number of WebSocket connections of one user to this server."`
	MaxKeyWebsockets     int           `zero:"off" max:"10000000" reload:"" group:"WebSockets" default:"off" placeholder:"N" help:"Maximum number of WebSocket connections opened with one API key to this server. off disables the limit."`
	MaxAddressWebsockets int           `zero:"off" max:"10000000" reload:"" group:"WebSockets" default:"1000" placeholder:"N" help:"Maximum number of WebSocket connections from one IP address that have not sent their first frame. off disables the limit."`
	ShowKinds            bool          `in:"flag,file,namespace" reload:"" group:"WebSockets" default:"off" placeholder:"on|off" help:"Whether everyone who can look a user up also sees the kinds of the devices on which the user is online, such as web or mobile."`

	RingTimeout time.Duration `in:"flag,file,namespace" reload:"" group:"Calls" default:"30s" min:"1s" max:"10m" placeholder:"DURATION" help:"Time until a call that the callee has not accepted is missed."`
	RedialWait  time.Duration `zero:"off" in:"flag,file,namespace" reload:"" group:"Calls" default:"10s" min:"1s" max:"5m" placeholder:"DURATION" help:"Time until a caller whose call was rejected, cancelled or missed can call the same user again. It doubles with each such call in a row, up to 5 minutes, and starts over after an answer, or 10 minutes after the end of the last call. Each server counts on its own. off disables it."`
	ShowCalls   bool          `in:"flag,file,namespace" reload:"" group:"Calls" default:"on" placeholder:"on|off" help:"Whether everyone who can look a user up also sees that the user is in a call. It applies to calls that are started later."`

	Retention time.Duration `zero:"off" in:"flag,file,namespace" reload:"" group:"Retention" default:"off" takes:"off, or a duration of at least yellow" placeholder:"DURATION" help:"Delete users not seen for this long. off keeps them."`

	ContactsRetention time.Duration `zero:"off" in:"flag,file,namespace" reload:"" group:"Retention" default:"off" takes:"off, or a duration of at least yellow and retention" placeholder:"DURATION" help:"Delete the contacts of users who have not used anything for this long: no ping, leave or connection, no availability, and no change of their contacts. off keeps them."`

	Changes feed.Mode `format:"enum" in:"flag,file,namespace" reload:"" group:"Changes feed" default:"auto" placeholder:"auto|on|off" help:"Whether the changes of namespaces are recorded, so that clients can follow them. With auto, from the first client that follows a namespace until 10 minutes after the last one. With on, always if the namespace is in the configuration file, otherwise as with auto. With off, never: requests to the feed return 409 feed_unavailable."`

	Sync time.Duration `group:"File store" default:"1s" zero:"0,0s" placeholder:"DURATION" help:"Time between flushes to disk, and the most that a crash can lose. With 0, each write is flushed before its response."`

	RedisPrefix       string          `group:"Redis store" default:"presence:" placeholder:"TEXT" help:"Prefix of every key."`
	RedisKey          string          `in:"namespace" kong:"-" group:"Redis store" help:"Key of the sorted set that holds the namespace, instead of the prefix and the namespace name. Other programs can write this set."`
	RedisScoreUnit    redisstore.Unit `format:"enum" in:"flag,file,namespace" group:"Redis store" default:"ms" placeholder:"ms|s" help:"Unit of scores. Set for a namespace, it declares that other programs also write the set."`
	RedisShards       int             `in:"flag,file,namespace" group:"Redis store" default:"1" min:"1" max:"64" placeholder:"N" help:"Number of sorted sets that hold a namespace."`
	RedisTimeout      time.Duration   `group:"Redis store" default:"250ms" placeholder:"DURATION" help:"Timeout of one call, including connecting and retrying."`
	RedisDialTimeout  time.Duration   `group:"Redis store" default:"200ms" placeholder:"DURATION" help:"Timeout of one attempt to connect."`
	RedisPoolSize     int             `group:"Redis store" default:"0" min:"0" max:"10000" placeholder:"N" help:"Maximum number of connections to each Redis. 0 means 10 per processor, or 5 in a Cluster."`
	RedisMinIdleConns int             `group:"Redis store" default:"0" min:"0" max:"10000" placeholder:"N" help:"Idle connections kept open to each Redis."`
	RedisMaxRetries   int             `group:"Redis store" default:"1" min:"0" max:"100" placeholder:"N" help:"How often a call is retried after a network error."`
	RedisWait         int             `group:"Redis store" default:"0" min:"0" max:"10" placeholder:"N" help:"Number of replicas that must confirm pings, leaves, deletions, availabilities, contacts and changes of calls within half of redis-timeout. With fewer, the request fails with 503 and its outcome is unknown. 0 does not wait."`
	RedisReadFrom     string          `format:"enum" group:"Redis store" default:"primary" placeholder:"primary|replica" help:"Where lookups, lists and counts of API keys are read from. With replica, replicas answer them that are at most redis-max-lag behind, and the primary answers the others. Not for a Cluster."`
	RedisMaxLag       time.Duration   `group:"Redis store" default:"1s" min:"100ms" max:"1m" placeholder:"DURATION" help:"How far behind a replica can be that is read from."`
}

// redisGroup is the heading of settings that only a Redis store has.
const redisGroup = "Redis store"

// OnRedis reports whether the store is Redis, and not a file.
func (s *Settings) OnRedis() bool { return IsStoreURL(s.Store) }

// AllowsOperators reports whether the admin listener serves a name in Host: a local one or one of allowed-hosts. A *
// there applies to the API only: it is safe where requests need credentials, which operators' requests do not have.
func (s *Settings) AllowsOperators(host string) bool {
	named := slices.DeleteFunc(slices.Clone(s.AllowedHosts), func(name string) bool { return name == "*" })
	return guard.AllowsHost(named, host)
}

// ForAPI returns the settings of a namespace that clients see.
func (s *Settings) ForAPI() api.Settings {
	shards := 1
	if s.OnRedis() {
		shards = s.RedisShards
	}
	return api.Settings{
		Thresholds:   s.Thresholds(),
		PingInterval: s.PingInterval, Retention: s.Retention, ContactsRetention: s.ContactsRetention, Shards: shards,
		Changes: s.Changes, ShowKinds: s.ShowKinds, Visibility: s.Visibility,
		RingTimeout: s.RingTimeout, RedialWait: s.RedialWait, ShowCalls: s.ShowCalls,
	}
}

// Thresholds returns the thresholds of statuses.
func (s *Settings) Thresholds() lastseen.Thresholds {
	return lastseen.Thresholds{Green: s.Green, Yellow: s.Yellow}
}

// of returns the settings of a namespace, configured or not, without the source of each: see Namespace.
func (c *Config) of(namespace string) *Settings {
	if ns, ok := c.namespaces[namespace]; ok {
		return &ns.Settings
	}
	return &c.Settings
}

// Feed returns the settings of a namespace's changes feed.
func (c *Config) Feed(namespace string) feed.Settings {
	s := c.of(namespace)
	return feed.Settings{Thresholds: s.Thresholds(), Mode: s.Changes}
}

// Connections returns the settings of the connections in a namespace.
func (c *Config) Connections(namespace string) connections.Settings {
	s := c.of(namespace)
	return connections.Settings{Thresholds: s.Thresholds(), PingInterval: s.PingInterval}
}

// Recorded returns the configured namespaces whose changes are always recorded, in order.
func (c *Config) Recorded() []string {
	return slices.DeleteFunc(c.Names(), func(name string) bool { return c.namespaces[name].Changes != feed.On })
}

// RedisOptions returns the options of a Redis store.
func (c *Config) RedisOptions() redisstore.Options {
	maxRetries := cmp.Or(c.RedisMaxRetries, -1) // zero would mean the client's default
	maxLag := c.RedisMaxLag
	if c.RedisReadFrom != ReadFromReplica {
		maxLag = 0 // none is read from
	}
	return redisstore.Options{
		URL: c.Store, MaxNamespaces: c.MaxNamespaces, Prefix: c.RedisPrefix, Shards: c.RedisShards,
		Unit: c.RedisScoreUnit, Layouts: c.layouts(), Timeout: c.RedisTimeout, DialTimeout: c.RedisDialTimeout,
		PoolSize: c.RedisPoolSize, MinIdleConns: c.RedisMinIdleConns, MaxRetries: maxRetries, Wait: c.RedisWait,
		MaxLag: maxLag,
	}
}

// layouts returns the layouts of the namespaces that have their own. A field is set only if the namespace sets it,
// since a unit declares that other programs also write the set.
func (c *Config) layouts() map[string]redisstore.Layout {
	layouts := map[string]redisstore.Layout{}
	for name, ns := range c.namespaces {
		l := redisstore.Layout{Key: ns.RedisKey}
		if ns.isSet("redis-score-unit") {
			l.Unit = ns.RedisScoreUnit
		}
		if ns.isSet("redis-shards") {
			l.Shards = ns.RedisShards
		}
		if l != (redisstore.Layout{}) {
			layouts[name] = l
		}
	}
	return layouts
}
