package redisstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newClient makes a client that fails fast: a lost Redis shows within Options.Timeout, whatever the
// number of attempts behind it.
func newClient(o Options) (redis.UniversalClient, error) {
	if Redact(o.URL) == unreadable {
		return nil, errors.New("the store URL is unreadable: write redis://user:password@host:port/database, " +
			"and in the password %2F for /, %3F for ?, %23 for #, %25 for %")
	}
	c, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, fmt.Errorf("store URL %s: %w", Redact(o.URL), err)
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

// unreadable stands for a URL of which no part can be shown.
const unreadable = "(unreadable)"

// Redact returns the URL without its password, and without its options, for messages. Of a URL in
// which a password could be taken for something else it shows nothing: an unescaped slash in it, for
// one, begins the path.
func Redact(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Opaque != "" || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
		return unreadable
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}
