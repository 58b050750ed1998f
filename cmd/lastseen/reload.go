package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/live/webhooks"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/connections"
)

// runtimeConfig is the configuration of a running server and the HTTP handler made from it. A reload replaces both.
// Requests in progress finish on the handler that they began with.
type runtimeConfig struct {
	dependencies
	current       atomic.Pointer[config.Config]
	handler       atomic.Pointer[http.Handler]
	authenticator *auth.Authenticator // of current
	certificate   *certificate        // nil without TLS
	feeds         feeds
	registry      *connections.Registry // of the connections that users hold open
	callManager   *calls.Manager
	webhooks      *webhooks.Manager
	changed       store.Waker // when there was a reload
}

// dependencies is what a server has for as long as it runs.
type dependencies struct {
	store   store.Store
	shared  *api.Shared                    // by all handlers
	load    func() (*config.Config, error) // returns the next configuration, for a reload
	logger  *slog.Logger
	level   *slog.LevelVar // of the logger
	metrics *prometheus.Registry
	tracer  trace.Tracer // nil without traces
}

// newRuntimeConfig returns the configuration c and a handler for it. An error means that files which c names changed
// since they were checked.
func newRuntimeConfig(c *config.Config, d dependencies) (*runtimeConfig, error) {
	certificate, err := openCertificate(c, d.logger)
	if err != nil {
		return nil, err
	}
	r := &runtimeConfig{dependencies: d, certificate: certificate, changed: store.NewWaker()}
	r.feeds = r.newFeeds(c.MaxWatches)
	r.registry = r.newRegistry(c.MaxUserWebsockets)
	r.callManager = r.newCallManager()
	r.webhooks = r.newWebhooks()
	return r, r.replace(c)
}

// close ends background work.
func (r *runtimeConfig) close() { r.authenticator.Close() }

func (r *runtimeConfig) config() *config.Config { return r.current.Load() }

// ServeHTTP serves a request by the current handler; see [http.Handler].
func (r *runtimeConfig) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	(*r.handler.Load()).ServeHTTP(w, request)
}

// apiConfig returns what the handler of a configuration needs.
func (r *runtimeConfig) apiConfig(c *config.Config) api.Config {
	namespaces := map[string]api.Settings{}
	for _, name := range c.Names() {
		namespaces[name] = c.Namespace(name).ForAPI()
	}
	return api.Config{
		Store: r.store, Settings: c.ForAPI(), Namespaces: namespaces,
		RefuseUnknown: c.UnknownNamespaces == config.RefuseUnknown, Auth: r.authenticator, Version: version(),
		Logger: r.logger, AccessLog: c.AccessLog, Tracer: r.tracer,
		Limits:     api.Limits{Caller: c.RateLimit, User: c.UserRateLimit},
		BodyMemory: c.BodyMemory, CORSOrigins: c.CORSOrigins, AllowedHosts: c.AllowedHosts,
		TrustedProxies: c.TrustedProxies, Feeds: r.feeds.hub, Connections: r.registry,
		Calls: r.callManager, Webhooks: r.webhooks,
		WebSockets: webSocketLimits(c), Shared: r.shared,
	}
}

// run reloads at every hangup, and reads the certificate again then and from time to time, until the context ends.
func (r *runtimeConfig) run(ctx context.Context, hangups <-chan os.Signal) {
	ticker := time.NewTicker(certificatePause)
	defer ticker.Stop()
	for {
		select {
		case <-hangups:
			r.reload()
			r.certificate.refresh()
		case <-ticker.C:
			r.certificate.refresh()
		case <-ctx.Done():
			return
		}
	}
}

// reload reads all settings again. They replace the current ones if they are valid and no difference requires a
// restart; otherwise nothing changes, and the log says why.
func (r *runtimeConfig) reload() {
	current := r.config()
	if current.Config == "" && current.Access.Tokens == nil && current.TLSCert == "" {
		r.logger.Info("nothing to reload: no configuration file is set (--config)")
		return
	}
	next, err := r.load()
	if err != nil {
		r.refuse(err)
		return
	}
	d := config.Compare(current, next)
	if len(d.Refused) > 0 {
		r.refuse(&config.Error{Problems: d.Refused})
		return
	}
	if err := r.replace(next); err != nil {
		r.refuse(err)
		return
	}
	for _, warning := range next.Warnings {
		r.logger.Warn(warning)
	}
	r.changed.Wake()
	r.logger.Info("configuration reloaded", "file", next.Config, "changes", d.Summary())
}

// replace makes a configuration the current one, and a handler for it. The authenticator is replaced only if access
// changed, since a new one has to verify all tokens again.
func (r *runtimeConfig) replace(next *config.Config) error {
	previous := r.authenticator
	if previous == nil || !reflect.DeepEqual(r.config().Access, next.Access) {
		authenticator, err := auth.New(next.Access, auth.Options{Logger: r.logger, Previous: previous})
		if err != nil {
			return err
		}
		r.authenticator = authenticator
		defer previous.Close()
	}
	r.level.Set(next.LogLevel) // first, so that the log has what the new settings refuse
	handler := api.New(r.apiConfig(next))
	r.handler.Store(&handler)
	r.current.Store(next)
	return nil
}

func (r *runtimeConfig) refuse(err error) {
	problems := []string{err.Error()}
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		problems = wrong.Problems
	}
	for _, problem := range problems {
		r.logger.Error("configuration not reloaded, nothing was changed", "problem", problem)
	}
}
