package guard

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
)

// Gate decides who can use which route.
type Gate struct {
	Authenticator func() *auth.Authenticator // the newest
	Sources       Sources
	Limiter       Limiter
	// ShowsKinds reports whether everyone who can read a namespace sees the kinds of live devices.
	ShowsKinds func(namespace string) bool
	// CheckServed returns an error unless a namespace is served; nil if all are.
	CheckServed func(namespace string) error
}

// Authorize returns an error unless a request can use a route, by the credentials in its header. The steps are:
// authenticate the caller, charge the caller's rate limit, check the caller's permission.
func (g *Gate) Authorize(c echo.Context, p Permission) error {
	authenticator := g.Authenticator()
	if authenticator.Open() {
		if err := g.Sources.Check(c.Request()); err != nil {
			return err
		}
	}
	if p == Greeting { // the address pays for what an unknown client sends, before any of it is parsed
		return g.Limiter.Charge(c.Request(), nil, 1)
	}
	caller, err := authenticator.Authenticate(c.Request().Context(), c.Request().Header[echo.HeaderAuthorization])
	if err := g.admit(c, caller, err); err != nil {
		return err
	}
	if p.isOfBeacons() && caller.IsAnonymous() && authenticator.TakesTokens() {
		return nil // the handler sees that the caller is anonymous, and calls AuthorizeToken
	}
	return cmp.Or(p.CheckRequest(c, caller), g.checkDevices(c, p, caller), g.checkKnown(c, p))
}

// AuthorizeToken returns an error unless a request without credentials in its header is authorized by the token in its
// body: a page that closes sends a beacon, which cannot have headers.
func (g *Gate) AuthorizeToken(c echo.Context, p Permission, token string) error {
	if token == "" {
		return ErrNoCredentials()
	}
	caller, err := g.Authenticator().AuthenticateToken(c.Request().Context(), token)
	if err := g.admit(c, caller, err); err != nil {
		return err
	}
	return cmp.Or(p.CheckRequest(c, caller), g.checkKnown(c, p))
}

// admit charges a request to the caller's rate limit, and returns the error of invalid credentials. These are charged
// by address, so that guessing is limited and other callers at the same address are not affected.
func (g *Gate) admit(c echo.Context, caller *auth.Caller, invalid error) error {
	if caller != nil {
		c.Set(callerKey, caller) // also for the log, if the limit is exceeded
	}
	if err := g.Limiter.Charge(c.Request(), caller, 1); err != nil {
		return err
	}
	if invalid != nil {
		return ErrInvalidCredentials(invalid)
	}
	return nil
}

// AuthorizeAgain returns an error unless the caller of a request that stays open can still use it at a time. It is
// charged as another request only if the credentials became invalid.
func (g *Gate) AuthorizeAgain(c echo.Context, now time.Time, permitted func(*auth.Caller) error) error {
	r := c.Request()
	caller, err := g.Authenticator().Authenticate(r.Context(), r.Header[echo.HeaderAuthorization])
	if caller, err = Confirm(CallerOf(c), caller, err, now); err != nil {
		return cmp.Or(g.Limiter.Charge(r, nil, 1), err)
	}
	return cmp.Or(permitted(caller), g.checkKnown(c, Read))
}

// Charge charges n more requests to the caller of a request that was authorized.
func (g *Gate) Charge(c echo.Context, n int) error {
	return g.Limiter.Charge(c.Request(), CallerOf(c), n)
}

// callerKey is the key of the caller in the context of a request.
const callerKey = "caller"

// CallerOf returns the caller that sent the request; nil on an open server.
func CallerOf(c echo.Context) *auth.Caller {
	caller, _ := c.Get(callerKey).(*auth.Caller)
	return caller
}

// CheckRequest returns an error unless a caller has a permission for the namespace and the user in the path. It depends
// on nothing that is stored.
func (p Permission) CheckRequest(c echo.Context, caller *auth.Caller) error {
	namespace, _ := request.PathParam(c, "namespace") // one that is not well encoded matches no pattern
	user, _ := request.PathParam(c, "user")
	return p.Check(namespace, user, caller)
}

// checkDevices returns an error if a caller with the scope read cannot see the devices of the user in the path, and not
// even their kinds.
func (g *Gate) checkDevices(c echo.Context, p Permission, caller *auth.Caller) error {
	if p != ReadDevices {
		return nil
	}
	namespace, _ := request.PathParam(c, "namespace")
	user, _ := request.PathParam(c, "user")
	switch {
	case caller.CanSeeDevices(namespace, user), g.ShowsKinds(namespace):
		return nil
	case caller.IsAnonymous():
		return ErrNoCredentials()
	default:
		return ErrForbidden(auth.Read, "Only API keys and the user's own token show devices in this namespace.")
	}
}

// checkKnown returns an error if the path has a namespace that this server does not serve. Deleting is not affected, so
// that an operator can remove a namespace that is not configured any longer.
func (g *Gate) checkKnown(c echo.Context, p Permission) error {
	if p == Admin || g.CheckServed == nil || len(c.ParamValues()) == 0 {
		return nil
	}
	namespace, err := request.Namespace(c)
	if err != nil {
		return nil //nolint:nilerr // the handler returns that error
	}
	return g.CheckServed(namespace)
}

// Attributes returns the attributes of a request in log lines.
func (g *Gate) Attributes(c echo.Context) []slog.Attr {
	return []slog.Attr{
		slog.String("request_id", c.Response().Header().Get(echo.HeaderXRequestID)),
		slog.String("method", telemetry.Bounded(c.Request().Method, telemetry.MaxReason)),
		slog.String("route", c.Path()),
		slog.String("caller", g.Limiter.NameOf(CallerOf(c), g.Limiter.Proxies.Client(c.Request()))),
	}
}

// NameOf returns the caller that something is charged to, in the form key:NAME, user:HASH or address:IP. The hash is
// the same for all requests of a user until the server restarts, and reveals nothing else. Only callers without
// credentials are named by their address.
func (l *Limiter) NameOf(caller *auth.Caller, address netip.Addr) string {
	switch {
	case caller == nil || caller.IsAnonymous():
		return string(limit.PerAddress) + ":" + address.String()
	case caller.Kind == auth.ByKey:
		return string(limit.PerKey) + ":" + caller.Name
	default:
		return string(limit.PerUser) + ":" + l.Pseudonyms.of(caller.Issuer+"\x00"+caller.Name)
	}
}

// Pseudonyms replaces names by hashes that cannot be computed elsewhere.
type Pseudonyms []byte // a secret key

func (p Pseudonyms) of(name string) string {
	mac := hmac.New(sha256.New, p)
	mac.Write([]byte(name))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
