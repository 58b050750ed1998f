// Package api is the HTTP API of lastseen, version 1: it reads requests, calls the store, turns states into statuses
// and writes JSON.
//
// Handlers hold no state about users: any number of servers on one store return the same responses.
package api

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/operations"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/api/web"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
)

// Settings are the settings of a namespace.
type Settings struct {
	Thresholds   lastseen.Thresholds
	PingInterval time.Duration // advice to clients: ping this often
	Retention    time.Duration // users not seen for this long are deleted; 0 for never
	Shards       int           // sorted sets that the namespace is spread over
	Changes      feed.Mode     // when changes are recorded
	ShowKinds    bool          // whether everyone who can read sees the kinds of live devices
	Visibility   Visibility    // who sees the users; "" is VisibleToEveryone
	RingTimeout  time.Duration // for how long a call rings at most; 0 is DefaultRingTimeout
	RedialWait   time.Duration // until a caller who got no answer can call the same user again; 0 for none
	ShowCalls    bool          // whether others see who is in a call

	ContactsRetention time.Duration // contacts of users who use nothing for this long are deleted; 0 for never
}

// DefaultRingTimeout is for how long a call rings unless it is set.
const DefaultRingTimeout = 30 * time.Second

// ringTimeout is for how long a call rings at most.
func (s Settings) ringTimeout() time.Duration { return cmp.Or(s.RingTimeout, DefaultRingTimeout) }

// Version describes the running build.
type Version = operations.Version

// Config is what the API needs. Store and Settings are required. It is a snapshot: to change it, make another handler
// with the same Shared and let that serve new requests.
type Config struct {
	Store         store.Store
	Settings      Settings            // of the namespaces that are not in Namespaces
	Namespaces    map[string]Settings // of the configured namespaces; not modified afterwards
	RefuseUnknown bool                // whether requests to namespaces that are not in Namespaces return 404

	Auth    *auth.Authenticator // default: an open server, where every request has full access
	Version Version
	Logger  *slog.Logger // default: slog.Default()
	// AccessLog logs a line about each request at level info.
	AccessLog bool
	Tracer    trace.Tracer     // of the requests below /v1; default none
	Random    func() float64   // in [0, 1), for jitter; default: math/rand/v2
	Now       func() time.Time // for the rate limits and the log; default: time.Now

	// Limits are the requests per second of one caller below /v1; default: unlimited.
	Limits Limits
	// Metrics is where the metrics of docs/metrics.md are registered; default nowhere. Only [NewShared] uses it.
	Metrics prometheus.Registerer
	// BodyMemory is how many bytes the bodies of all requests in progress can take; default [DefaultBodyMemory], at
	// least [MinBodyMemory]. Only [NewShared] uses it.
	BodyMemory int64
	// CORSOrigins are the origins whose scripts can call from a browser; default none. See [CheckOrigin].
	CORSOrigins []string
	// AllowedHosts are the names in Host that an open server serves besides local ones; default none. See [CheckHost].
	AllowedHosts []string
	// TrustedProxies are the peers whose X-Forwarded-For is believed; default none.
	TrustedProxies []netip.Prefix

	// Feeds follows the changes feeds; default: a hub that nobody runs, so that all namespaces have no feed.
	Feeds *feed.Hub
	// Connections records who holds a WebSocket open; default: a registry that nobody runs, so that a connection counts
	// as a ping only when it begins.
	Connections *connections.Registry
	// Calls keeps calls going; default: one that nobody runs, so that calls end late and only by actions.
	Calls *calls.Manager
	// Webhooks are those of the configuration; default: none.
	Webhooks operations.Webhooks
	// WebSockets are the limits of WebSockets. The origins of CORSOrigins can open them.
	WebSockets WebSocketLimits

	Shared *Shared // default: a new one
}

// Shared is the state that outlives a handler: a new handler continues with the Shared of the one that it replaces. It
// counts requests and memory, and holds the current authenticator.
type Shared struct {
	// authenticator is that of the newest handler. Older handlers use it, too, for the requests that they finish, so
	// that a removed key stops working at once.
	authenticator atomic.Pointer[auth.Authenticator]
	// newest is the newest handler, whose configuration decides whether a request can stay open.
	newest atomic.Pointer[server]
	*session.Hub

	audience   *audience.Shared
	buckets    *limit.Buckets
	redials    *limit.Redials
	origins    *telemetry.Throttle // of log lines about refused origins
	load       *guard.Load
	pseudonyms guard.Pseudonyms
	pages      web.Pages
}

// NewShared returns the state for handlers with this configuration. All of them use its BodyMemory, Metrics, Logger,
// Version and Now.
func NewShared(c Config) *Shared {
	c = c.withDefaults()
	bodies := limit.NewMemory(c.BodyMemory, guard.ErrBodyMemory)
	load := guard.NewLoad(c.Logger, c.Now, telemetry.SettleTime)
	s := &Shared{
		buckets: limit.New(limit.DefaultSize, c.Now), redials: limit.NewRedials(), load: load,
		origins:    telemetry.NewHourly(c.Logger),
		pseudonyms: guard.Pseudonyms(crand.Text()), audience: audience.NewShared(),
		pages: web.New(lastseen.OpenAPI(c.Version.Version), lastseen.AsyncAPI(c.Version.Version),
			lastseen.FrameSchemas()),
	}
	s.Hub = session.New(session.Options{
		Telemetry:     telemetry.New(c.Metrics, measured((&server{}).routes())),
		Subscriptions: subscription.NewShared(c.Now), Bodies: bodies,
		Failures: telemetry.NewFailures(c.Logger, c.Now), Now: c.Now, Show: shown(),
		Authenticate: func(ctx context.Context, credentials []string) (*auth.Caller, error) {
			return s.authenticator.Load().Authenticate(ctx, credentials)
		},
		Classify: classify,
	})
	guard.ExportMemory(promauto.With(c.Metrics), bodies, c.BodyMemory)
	load.Export(promauto.With(c.Metrics))
	return s
}

// Memory for request bodies, in bytes.
const (
	// DefaultBodyMemory is the memory for the bodies of all requests, unless [Config] sets it.
	DefaultBodyMemory = 64 << 20
	// MinBodyMemory leaves a caller room for the largest request.
	MinBodyMemory = 24 << 20
)

// Limits are rate limits of callers, in requests per second.
type Limits = limit.Limits

// server holds what handlers need.
type server struct {
	*Shared
	Config
	gate      guard.Gate
	uncounted store.Store         // Store, but its calls do not count as load
	replicas  store.ReplicaReader // nil without replicas
	live      *session.Server

	operations *operations.Handlers
}

// New returns the handler of all endpoints. Its authenticator becomes that of all handlers with the same Shared.
func New(c Config) http.Handler {
	c = c.withDefaults()
	if c.Shared == nil {
		c.Shared = NewShared(c)
	}
	if c.Feeds == nil {
		off := func(string) feed.Settings { return feed.Settings{Mode: feed.Off} }
		c.Feeds = feed.New(feed.Options{Store: c.Store, Settings: off, Logger: c.Logger})
	}
	if c.Connections == nil {
		settings := func(string) connections.Settings {
			return connections.Settings{Thresholds: c.Settings.Thresholds, PingInterval: c.Settings.PingInterval}
		}
		c.Connections = connections.New(connections.Options{Store: c.Store, Settings: settings, Logger: c.Logger})
	}
	if c.Calls == nil {
		c.Calls = calls.New(c.Store, c.Logger)
	}
	c.Shared.authenticator.Store(c.Auth)
	factor := c.Settings.maxFactor()
	for _, settings := range c.Namespaces {
		factor = max(factor, settings.maxFactor())
	}
	c.Shared.load.Configure(func() float64 { return c.Store.Load() }, factor)
	replicas, _ := store.As[store.ReplicaReader](c.Store)
	s := &server{
		Shared: c.Shared, Config: c, replicas: replicas, uncounted: c.Store,
		gate: guard.Gate{
			Authenticator: c.Shared.authenticator.Load,
			Sources:       guard.Sources{Hosts: c.AllowedHosts, Origins: c.CORSOrigins},
			Limiter: guard.Limiter{
				Buckets: c.Shared.buckets, Limits: c.Limits, Proxies: guard.NewProxies(c.TrustedProxies),
				Random: c.Random, Exceeded: c.Shared.Telemetry.RateLimited, Pseudonyms: c.Shared.pseudonyms,
			},
		},
	}
	s.gate.ShowsKinds = func(namespace string) bool { return s.settings(namespace).ShowKinds }
	if c.RefuseUnknown {
		s.gate.CheckServed = s.checkServed
	}
	s.Store = s.counted(c.Store)
	s.operations = operations.New(operations.Options{
		Webhooks: c.Webhooks, Ready: s.Store.Ready, Draining: s.Draining, Version: c.Version,
	})
	interval := func(namespace string) time.Duration { return s.settings(namespace).PingInterval }
	s.Telemetry.Configure(c.WebSockets.Max, slices.Collect(maps.Keys(c.Namespaces)), interval)
	s.live = s.sessions()
	s.newest.Store(s)
	s.Configure(s.live)
	return s.handler()
}

// handler returns the routes behind what all requests pass.
func (s *server) handler() http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = s.handleError
	if s.AccessLog {
		// First, so that it sees each response as it was sent.
		e.Pre(telemetry.AccessLog(s.Logger, s.Now, s.gate.Attributes))
	}
	if s.Tracer != nil {
		e.Pre(telemetry.Trace(s.Tracer))
	}
	e.Pre(s.begin, guard.ExplainCORS(s.Logger, s.origins, s.gate.Attributes))
	if len(s.CORSOrigins) > 0 {
		e.Pre(guard.CORS(s.CORSOrigins))
	}
	e.Pre(guard.CheckPath)
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{
		DisableErrorHandler: true,
		LogErrorFunc: func(_ echo.Context, err error, stack []byte) error {
			return fmt.Errorf("panic: %w\n%s", err, stack)
		},
	}))
	for _, r := range s.routes() {
		serve := s.serve(r)
		e.Add(r.method, r.path, serve)
		if r.method == http.MethodGet {
			e.Add(http.MethodHead, r.path, serve)
		}
	}
	return e
}

// withDefaults returns the configuration with defaults in place of missing values.
func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.BodyMemory = cmp.Or(c.BodyMemory, DefaultBodyMemory)
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// settings returns the settings of a namespace.
func (s *server) settings(namespace string) Settings {
	settings, ok := s.Namespaces[namespace]
	if !ok {
		settings = s.Settings
	}
	return settings
}

// Values of headers that are the same in many responses. Sharing them saves an allocation each. They must not be
// modified.
var (
	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)

// begin gives every request an ID, which the response repeats. While the server is draining, the response ends its
// connection; HTTP/2 has no such header, and package net/http sends GOAWAY instead. It also measures the request.
// Separate middlewares would cost two allocations each.
func (s *server) begin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Response().Header()
		header.Set(echo.HeaderXRequestID, request.ID(c.Request()))
		header[echo.HeaderXContentTypeOptions] = noSniff
		if s.Draining() {
			header.Set(echo.HeaderConnection, "close")
		}
		return s.Telemetry.Measure(c, next)
	}
}
