package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store"
)

// live is the configuration of a running service. A reload replaces it as a whole.
type live struct {
	current atomic.Pointer[config.Config]
	guard   atomic.Pointer[auth.Authenticator] // by the access of current
	load    func() (*config.Config, error)
	shown   *certificate // nil without TLS
	logger  *slog.Logger
	level   *slog.LevelVar // of the logger
	changed chan struct{}  // holds one thing when the configuration was replaced since it was last looked at
}

// newLive returns a configuration of which load reads the next. An error means that files of it changed since
// they were checked.
func newLive(c *config.Config, load func() (*config.Config, error), logger *slog.Logger, level *slog.LevelVar) (*live, error) {
	shown, err := openCertificate(c, logger)
	if err != nil {
		return nil, err
	}
	guard, err := auth.New(c.Access, auth.Options{Logger: logger})
	if err != nil {
		return nil, err
	}
	l := &live{load: load, shown: shown, logger: logger, level: level, changed: make(chan struct{}, 1)}
	l.current.Store(c)
	l.guard.Store(guard)
	return l, nil
}

// close ends what goes on in the background.
func (l *live) close() { l.guard.Load().Close() }

func (l *live) config() *config.Config { return l.current.Load() }

// scheme returns the scheme of the server's URLs.
func (l *live) scheme() string {
	if l.shown != nil {
		return "https"
	}
	return "http"
}

// interfaceTo returns what the HTTP interface to a store needs.
func (l *live) interfaceTo(s store.Store) api.Config {
	return api.Config{
		Store: s, Settings: l.namespace, Version: version(), Logger: l.logger,
		Known: l.knows, Access: l.access, Limits: l.limits,
		CORSOrigins: l.origins, AllowedHosts: l.allowedHosts, TrustedProxies: l.config().TrustedProxies,
		AccessLog:  func() bool { return l.config().AccessLog },
		BodyMemory: l.config().BodyMemory,
	}
}

// namespace returns the settings of a namespace that callers see.
func (l *live) namespace(name string) api.Settings { return l.config().Namespace(name).ForAPI() }

// knows reports whether a namespace is served.
func (l *live) knows(namespace string) bool {
	return l.config().Knows(namespace)
}

// retention returns how long a namespace keeps users who are not seen; 0 for ever.
func (l *live) retention(namespace string) time.Duration {
	return l.config().Namespace(namespace).Retention
}

// configured reports whether a namespace is named in the settings.
func (l *live) configured(namespace string) bool {
	return l.config().Configured(namespace)
}

// access returns who tells callers apart.
func (l *live) access() *auth.Authenticator { return l.guard.Load() }

// limits returns how many requests a caller may send.
func (l *live) limits() limit.Limits {
	c := l.config()
	return limit.Limits{Caller: c.RateLimit, User: c.UserRateLimit}
}

// origins returns from which origins pages may call.
func (l *live) origins() []string { return l.config().CORSOrigins }

// allowedHosts returns for which names a server without authentication answers, beside local ones.
func (l *live) allowedHosts() []string { return l.config().AllowedHosts }

// names returns the configured namespaces.
func (l *live) names() []string { return l.config().Names() }

// run reloads at every hangup until the context ends.
func (l *live) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			l.reload()
			l.shown.refresh()
		case <-ctx.Done():
			return
		}
	}
}

// reload reads all settings anew. They replace the current ones if nothing is wrong with them and none of
// those that differ needs a restart; otherwise nothing changes, and the log says why.
func (l *live) reload() {
	current := l.config()
	if current.Config == "" && current.Access.Tokens == nil && current.TLSCert == "" {
		l.logger.Info("nothing to reload: no configuration file is set (--config)")
		return
	}
	next, err := l.load()
	var wrong *config.Error
	switch {
	case errors.As(err, &wrong):
		l.refuse(wrong.Problems)
		return
	case err != nil:
		l.refuse([]string{err.Error()})
		return
	}
	d := config.Compare(current, next)
	if len(d.Refused) > 0 {
		l.refuse(d.Refused)
		return
	}
	if err := l.replace(current, next); err != nil {
		l.refuse([]string{err.Error()})
		return
	}
	for _, warning := range next.Warnings {
		l.logger.Warn(warning)
	}
	select {
	case l.changed <- struct{}{}:
	default: // told already
	}
	l.logger.Info("configuration reloaded", "file", next.Config, "changes", d.Summary())
}

// replace puts the next configuration in the place of the current one. Who may do what is told apart anew only
// if it changed; requests under way are decided by what held before.
func (l *live) replace(current, next *config.Config) error {
	if !reflect.DeepEqual(current.Access, next.Access) {
		former := l.guard.Load()
		guard, err := auth.New(next.Access, auth.Options{Logger: l.logger, Former: former})
		if err != nil {
			return err
		}
		l.guard.Store(guard)
		former.Close()
	}
	l.level.Set(next.LogLevel)
	l.current.Store(next)
	return nil
}

func (l *live) refuse(problems []string) {
	for _, problem := range problems {
		l.logger.Error("configuration not reloaded, nothing was changed", "problem", problem)
	}
}
