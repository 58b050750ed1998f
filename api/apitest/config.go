package apitest

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// TwoKeys configures two keys and JWTs that the returned function makes.
func TwoKeys(t *testing.T) (guarded func(*api.Config), one, two string, token func(user string) string) {
	t.Helper()
	oneKey, one := kit.NewKey("one", "*", auth.Scopes()...)
	twoKey, two := kit.NewKey("two", "*", auth.Scopes()...)
	authenticator, token0 := kit.Signed(t, func(c *auth.Config) {
		c.Keys, c.AnonymousRead = []auth.Key{oneKey, twoKey}, []auth.Pattern{"*"}
	})
	return func(c *api.Config) {
		BehindProxy(c)
		c.Auth = authenticator
		c.Limits = limit.Limits{Caller: 1, User: 2}
	}, one, two, func(user string) string { return token0(user, time.Hour) }
}

// WithStoreTime makes the time of a server that of its store, for which NewServer has another one.
func WithStoreTime(s store.Store) func(*api.Config) { return func(c *api.Config) { c.Store = s } }

// Settings are those of test servers.
func Settings() api.Settings {
	return api.Settings{
		Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
		PingInterval: 30 * time.Second,
	}
}

// ToContacts makes the users of all namespaces visible to their contacts.
func ToContacts(c *api.Config) { c.Settings.Visibility = api.VisibleToContacts }

// AtMinutes makes the server trust X-Forwarded-For of the test's client, and returns how its clock goes on.
func AtMinutes() (configure func(*api.Config), pass func(time.Duration)) {
	var now atomic.Int64
	return func(c *api.Config) {
		BehindProxy(c)
		c.Limits, c.Now = limit.Limits{}, func() time.Time { return time.Unix(0, now.Load()) }
	}, func(d time.Duration) { now.Add(int64(d)) }
}

// BehindProxy makes the server trust the X-Forwarded-For of the test's client, and limits an address to 5 requests
// at once.
func BehindProxy(c *api.Config) {
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	c.Limits = limit.Limits{Caller: 1}
	c.Now = func() time.Time { return time.Unix(0, 0) }
}

// Allowing sets the allowed origins.
func Allowing(origins ...string) func(*api.Config) {
	return func(c *api.Config) { c.CORSOrigins = origins }
}

// KnowsChat configures the namespace chat and refuses others.
func KnowsChat(c *api.Config) {
	c.RefuseUnknown = true
	c.Namespaces = map[string]api.Settings{"chat": c.Settings}
}
