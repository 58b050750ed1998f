// Package api is the HTTP interface of lastseen, version 1: it reads requests, asks the store, turns
// states into statuses and writes JSON.
//
// Where things are: routes.go is the table of all endpoints, authorize.go who may use them; each group of them has a file of
// handlers; params.go, body.go and ndjson.go read input by the rules that all endpoints share;
// cursor.go is how a walk over pages is remembered; errors.go is the one place where an error becomes
// an answer.
//
// Handlers hold no state: any number of servers on one store give the same answers.
package api

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"golang.org/x/sync/singleflight"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/web"
	"github.com/lastseen/lastseen/store"
)

// Settings are what is configured for a namespace.
type Settings struct {
	Thresholds   lastseen.Thresholds
	PingInterval time.Duration // advice to clients: ping this often
	Retention    time.Duration // users not seen for so long are erased; 0 for never
	Shards       int           // sorted sets that the namespace is spread over
}

// Version describes the running build.
type Version struct {
	// The version of lastseen.
	Version string `json:"version"`
	// The commit that it was built from, if known.
	Revision string `json:"revision,omitzero" validate:"optional"`
	// The version of Go that it was built with.
	Go string `json:"go"`
} // @name Version

// Config is what the interface needs. Store and Settings are required.
type Config struct {
	Store    store.Store
	Settings func(namespace string) Settings
	Access   func() *auth.Authenticator // who may do what, asked at every request; default: everybody everything
	Version  Version
	Logger   *slog.Logger // default slog.Default()
	// AccessLog is asked at every request whether to log a line about it, at level info; default never.
	AccessLog func() bool
	Random    func() float64 // in [0, 1), for jitter; default math/rand/v2
	Extra     []Endpoint     // beside those of version 1, behind the same middleware; default none

	// Known is asked at every request that reads or records something whether its namespace is served; default: all
	// are.
	Known func(namespace string) bool

	// Limits is asked at every request below /v1 how many a caller may send; default none. This machine's
	// own addresses are not limited: with a proxy on it, they would be one caller for all.
	Limits func() limit.Limits
	Now    func() time.Time // for the limits and the log; default time.Now
	// BodyMemory is how many bytes the bodies of all requests in progress may take; default [DefaultBodyMemory],
	// at least [MinBodyMemory].
	BodyMemory int64
	bodies     *bodyMemory // of this size, unless a test brings its own
	// CORSOrigins is asked at every request from which origins scripts in browsers may call, as in
	// https://app.example.com, https://*.example.com, or * for any; default none. See [CheckOrigin].
	CORSOrigins func() []string
	// AllowedHosts is asked at every request to a server that authenticates nobody for which names in Host it answers
	// beside local ones; default none. See [CheckHost].
	AllowedHosts func() []string
	// TrustedProxies are whose word is taken on where a request came from, in X-Forwarded-For. Without any,
	// a caller's address is that of the connection.
	TrustedProxies []netip.Prefix
}

// Endpoint is one that the program adds; on a server that asks who its callers are it needs the scope admin. The
// benchmark adds some that do nothing, to learn what all before the handler costs.
type Endpoint struct {
	Method, Path string // Path as Echo writes patterns: /v1/namespaces/:namespace
	Handle       echo.HandlerFunc
}

// server holds what handlers need.
type server struct {
	store    store.Store
	settings func(namespace string) Settings
	known    func(namespace string) bool // nil if all are
	access   func() *auth.Authenticator
	version  Version
	logger   *slog.Logger
	random   func() float64
	pages    web.Pages
	limits   func() limit.Limits
	buckets  *limit.Buckets
	bodies   *bodyMemory
	probes   singleflight.Group // of readyz
	proxies  proxies

	// What protects an open server from web pages; see checkSource.
	allowedHosts func() []string
	origins      func() []string // that CORS allows
	crossOrigin  http.CrossOriginProtection
	now          func() time.Time
	logsAccess   func() bool
	failures     *failureLog
	pseudonyms   pseudonyms
}

// New returns the handler of all endpoints.
func New(c Config) http.Handler {
	c = c.withDefaults()
	s := &server{
		store: c.Store, settings: c.Settings, known: c.Known, access: c.Access, version: c.Version, logger: c.Logger, random: c.Random,
		pages: web.New(ErrorCodes()), limits: c.Limits, buckets: limit.New(limit.DefaultSize, c.Now), proxies: unmapped(c.TrustedProxies),
		allowedHosts: c.AllowedHosts, origins: c.CORSOrigins,
		now: c.Now, logsAccess: c.AccessLog, failures: newFailureLog(c.Logger, c.Now), pseudonyms: newPseudonyms(),
		bodies: c.bodies,
	}
	e := echo.New()
	e.HTTPErrorHandler = s.handleError
	e.Pre(s.accessLog, requestID, s.explainCORS, cors(c.CORSOrigins), checkPath)
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{
		DisableErrorHandler: true,
		LogErrorFunc:        func(_ echo.Context, err error, stack []byte) error { return panicked(err, stack) },
	}))
	for _, r := range append(s.routes(), extraRoutes(c.Extra)...) {
		serve := s.serve(r)
		e.Add(r.method, r.path, serve)
		if r.method == http.MethodGet {
			e.Add(http.MethodHead, r.path, serve)
		}
	}
	return e
}

// withDefaults returns the configuration with defaults for what is not there.
func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Limits == nil {
		c.Limits = func() limit.Limits { return limit.Limits{} }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.AccessLog == nil {
		c.AccessLog = func() bool { return false }
	}
	if c.BodyMemory == 0 {
		c.BodyMemory = DefaultBodyMemory
	}
	if c.bodies == nil {
		c.bodies = newBodyMemory(c.BodyMemory)
	}
	if c.CORSOrigins == nil {
		c.CORSOrigins = func() []string { return nil }
	}
	if c.AllowedHosts == nil {
		c.AllowedHosts = func() []string { return nil }
	}
	return c
}
