package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// checkRateLimit charges n requests to the caller's limit, and returns an error if that is exceeded. Many count as at
// most half of a burst.
func (s *server) checkRateLimit(c echo.Context, caller *auth.Caller, n int) error {
	if s.Limits == (limit.Limits{}) {
		return nil
	}
	key, limited := s.limitKey(c, caller)
	return s.chargeKey(key, limited, n)
}

// chargeKey charges n requests to a key, unless it is not limited.
func (s *server) chargeKey(key limit.Key, limited bool, n int) error {
	if !limited || s.Limits == (limit.Limits{}) {
		return nil
	}
	return s.chargeWithin(key, s.Limits, n)
}

// chargeWithin charges n requests to a key.
func (s *server) chargeWithin(key limit.Key, limits limit.Limits, n int) error {
	exceeded, ok := s.buckets.AllowN(key, limits, n)
	if ok {
		return nil
	}
	s.Telemetry.RateLimited(key.Policy)
	burst, seconds := limit.Burst(exceeded.PerSecond), wholeSeconds(exceeded.Wait)
	wait := seconds
	if key.Policy == limit.PerAddress { // many users can be behind it, who must not come back together
		wait += int64(s.Random() * limit.Window.Seconds())
	}
	e := problem.Errorf(problem.RateLimited, "Rate limit for one %s: %d requests per second, and bursts of up to %d.",
		key.Policy, exceeded.PerSecond, burst).RetryAfter(wait)
	e.Header["RateLimit"] = fmt.Sprintf("%q;r=0;t=%d", key.Policy, seconds) // draft-ietf-httpapi-ratelimit-headers-10
	e.Header["RateLimit-Policy"] = fmt.Sprintf("%q;q=%d;w=%d", key.Policy, burst, limit.Window/time.Second)
	return e
}

// wholeSeconds returns a time in seconds, rounded up, as in the header Retry-After.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// pay charges what comes on a connection to the caller: a large frame, before it is parsed, or a page. If the limit is
// exceeded, it waits. An error would end the connection of a client that sends little otherwise.
func (s *server) pay(key limit.Key, limited bool, requests int) {
	if !limited {
		return
	}
	if exceeded, ok := s.buckets.AllowN(key, s.Limits, requests); !ok {
		time.Sleep(exceeded.Wait)                        // half of limit.Window at most
		_, _ = s.buckets.AllowN(key, s.Limits, requests) // others may have been faster: one wait is enough
	}
}

// limitKey returns what a request is charged to: the API key or the user of an authenticated caller, and the address of
// others.
func (s *server) limitKey(c echo.Context, caller *auth.Caller) (key limit.Key, limited bool) {
	if caller == nil || caller.IsAnonymous() {
		return s.addressKey(c.Request())
	}
	return callerKeyOf(caller), true
}

// hold returns an empty hold of memory for the body of a request.
func (s *server) hold(c echo.Context) *limit.Hold { return s.bodies.Hold(s.limitKey(c, callerOf(c))) }

// refusedBody returns the error of a caller whose share of the memory for bodies, in bytes, is used up; with the share
// 0, that of all callers is.
func refusedBody(caller limit.Policy, share int64) error {
	if share == 0 {
		return problem.New(problem.Overloaded, "The memory for request bodies is in use. Try again later.")
	}
	return problem.Errorf(problem.RateLimited,
		"Limit for one %s: %d KiB of request bodies at the same time. Send fewer requests at the same time.",
		caller, share>>10).RetryAfter(1) // second: a body that arrives at a usual pace is complete by then
}

// callerKeyOf returns the key of an authenticated caller.
func callerKeyOf(caller *auth.Caller) limit.Key {
	if caller.Kind == auth.ByKey {
		return limit.ByAPIKey(caller.Name)
	}
	return limit.ByUser(caller.Issuer, caller.Name)
}

// addressKey returns the key of the address that sent a request. Connections from this machine are not limited, unless
// a trusted proxy forwards them: a proxy that is not configured would be one caller for all.
func (s *server) addressKey(r *http.Request) (key limit.Key, limited bool) {
	return limit.ByAddress(s.proxies.Client(r)), !s.proxies.IsLocal(r) // requests without an address share a key
}
