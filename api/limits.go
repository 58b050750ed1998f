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

// count counts a request, and returns an error if its caller sends more than they may. A caller who is not known,
// or nil, is one of many at an address.
func (s *server) count(c echo.Context, caller *auth.Caller) error {
	if s.limits == (limit.Limits{}) {
		return nil
	}
	who, counted := s.counted(c, caller)
	if !counted {
		return nil
	}
	refusal, ok := s.buckets.Allow(who, s.limits)
	if ok {
		return nil
	}
	e := errorf(codeRateLimited, "Rate limit for one %s: %d requests per second, and bursts of up to %d.",
		who.Kind, refusal.PerSecond, limit.Burst(refusal.PerSecond))
	e.excess = &excess{who.Kind, refusal}
	return e
}

// counted returns the caller that a request is counted for. Connections from this machine are not counted, unless a
// trusted proxy forwards: a proxy there that is not configured would be one caller for everybody.
func (s *server) counted(c echo.Context, caller *auth.Caller) (who limit.Caller, counted bool) {
	switch {
	case caller == nil || caller.Kind == auth.Anonymous:
		request := c.Request() // callers without an address are one caller
		return limit.AtAddress(s.proxies.client(request)), !s.proxies.isLocal(request)
	case caller.Kind == auth.ByKey:
		return limit.WithKey(caller.Name), true
	default:
		return limit.AsUser(caller.Issuer, caller.Name), true
	}
}

// excess is of what a caller sent too much.
type excess struct {
	kind    limit.Kind
	refusal limit.Exceeded
}

// describe says in headers when to come back, and which limit there is: see
// draft-ietf-httpapi-ratelimit-headers-10.
func (e *excess) describe(header http.Header) {
	seconds := int64((e.refusal.Wait + time.Second - 1) / time.Second)
	header.Set(echo.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
	header.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", e.kind, seconds))
	header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", e.kind, limit.Burst(e.refusal.PerSecond), limit.Window/time.Second))
}
