package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/api"
)

// live is the configuration of a running service. A reload replaces it as a whole.
type live struct {
	current atomic.Pointer[config]
	load    func() (*config, error)
	logger  *slog.Logger
	changed chan struct{} // holds one thing when the configuration was replaced since it was last looked at
}

func newLive(c *config, load func() (*config, error), logger *slog.Logger) *live {
	l := &live{load: load, logger: logger, changed: make(chan struct{}, 1)}
	l.current.Store(c)
	return l
}

func (l *live) config() *config { return l.current.Load() }

// namespace returns the settings of a namespace that callers see.
func (l *live) namespace(name string) api.Settings { return l.config().namespace(name).forAPI() }

// retention returns how long a namespace keeps users who are not seen; 0 for ever.
func (l *live) retention(namespace string) time.Duration {
	return time.Duration(l.config().namespace(namespace).Retention)
}

// retains reports whether any namespace may have a retention.
func (l *live) retains() bool {
	c := l.config()
	if c.Retention > 0 {
		return true
	}
	for _, ns := range c.namespaces {
		if ns.Retention > 0 {
			return true
		}
	}
	return false
}

// names returns the configured namespaces.
func (l *live) names() []string { return l.config().names() }

// run reloads at every hangup until the context ends.
func (l *live) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			l.reload()
		case <-ctx.Done():
			return
		}
	}
}

// reload reads all settings anew. They replace the current ones if nothing is wrong with them and none of
// those that differ needs a restart; otherwise nothing changes, and the log says why.
func (l *live) reload() {
	current := l.config()
	if current.Config == "" {
		l.logger.Info("nothing to reload: there is no configuration file (--config)")
		return
	}
	next, err := l.load()
	var wrong *settingsError
	switch {
	case errors.As(err, &wrong):
		l.refuse(wrong.problems)
		return
	case err != nil:
		l.refuse([]string{err.Error()})
		return
	}
	d := compare(current, next)
	if len(d.needRestart) > 0 {
		l.refuse(d.needRestart)
		return
	}
	for _, warning := range next.warnings {
		l.logger.Warn(warning)
	}
	l.current.Store(next)
	select {
	case l.changed <- struct{}{}:
	default: // told already
	}
	l.logger.Info("configuration reloaded", "file", next.Config, "changes", d.summary())
}

func (l *live) refuse(problems []string) {
	for _, problem := range problems {
		l.logger.Error("configuration not reloaded, nothing was changed", "problem", problem)
	}
}
