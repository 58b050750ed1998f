package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
)

// checkRateLimit charges a request to the caller's limit, and returns an error if that is exceeded.
func (s *server) checkRateLimit(c echo.Context, caller *auth.Caller) error {
	if s.limits == (limit.Limits{}) {
		return nil
	}
	key, limited := s.limitKey(c, caller)
	if !limited {
		return nil
	}
	exceeded, ok := s.buckets.Allow(key, s.limits)
	if ok {
		return nil
	}
	e := errorf(codeRateLimited, "Rate limit for one %s: %d requests per second, and bursts of up to %d.",
		key.Policy, exceeded.PerSecond, limit.Burst(exceeded.PerSecond))
	e.exceeded = &exceededLimit{key.Policy, exceeded}
	return e
}

// limitKey returns what a request is charged to: the API key or the user of an authenticated caller, and the address of
// others. Connections from this machine are not limited, unless a trusted proxy forwards them: a proxy that is not
// configured would be one caller for all.
func (s *server) limitKey(c echo.Context, caller *auth.Caller) (key limit.Key, limited bool) {
	switch {
	case caller == nil || caller.IsAnonymous():
		request := c.Request() // requests without an address share a limit
		return limit.ByAddress(s.proxies.client(request)), !s.proxies.isLocal(request)
	case caller.Kind == auth.ByKey:
		return limit.ByAPIKey(caller.Name), true
	default:
		return limit.ByUser(caller.Issuer, caller.Name), true
	}
}

// exceededLimit is a limit that a caller exceeded.
type exceededLimit struct {
	policy limit.Policy
	limit.Exceeded
}

// setHeaders sets the headers that say when to try again, and which limit there is: see
// draft-ietf-httpapi-ratelimit-headers-10.
func (e *exceededLimit) setHeaders(header http.Header) {
	seconds := int64((e.Wait + time.Second - 1) / time.Second)
	header.Set(echo.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
	header.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", e.policy, seconds))
	header.Set("RateLimit-Policy",
		fmt.Sprintf("%q;q=%d;w=%d", e.policy, limit.Burst(e.PerSecond), limit.Window/time.Second))
}
