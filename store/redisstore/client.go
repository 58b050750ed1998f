package redisstore

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newClient makes a client that fails fast: a lost Redis shows within Options.Timeout, whatever the
// number of attempts behind it.
func newClient(o Options) (redis.UniversalClient, error) {
	c, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, fmt.Errorf("store URL %s: %w", Redact(o.URL), withoutURL(err))
	}
	c.DialTimeout, c.ReadTimeout, c.WriteTimeout = o.DialTimeout, o.Timeout, o.Timeout
	c.PoolTimeout = o.Timeout / 2
	c.PoolSize, c.MinIdleConns = o.PoolSize, o.MinIdleConns
	c.MaxRetries, c.DialerRetries = o.MaxRetries, 1
	c.ContextTimeoutEnabled = true
	c.DisableIdentity = true
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(c), nil
}

// Redact returns the URL without its password, for messages.
func Redact(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "(unreadable)"
	}
	return u.Redacted()
}

// withoutURL drops the URL that net/url repeats in its errors, since it may hold a password.
func withoutURL(err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}
