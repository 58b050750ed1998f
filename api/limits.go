package api

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/limit"
)

// limited counts a request below /v1 before anything else is done for it.
func (s *server) limited(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := s.countAddress(c); err != nil {
			return err
		}
		return next(c)
	}
}

// countAddress counts a request of somebody of whom only the address is known. This machine's own addresses are
// not counted: a proxy there that is not known as one would be one caller for everybody.
func (s *server) countAddress(c echo.Context) error {
	limits := s.limits()
	if limits.Caller == 0 {
		return nil
	}
	address, _ := netip.ParseAddr(c.RealIP()) // all who have none that can be read are one caller
	if address.IsLoopback() {
		return nil
	}
	return s.count(c, limit.AtAddress(address), limits)
}

// count takes a request from what the caller may send, or returns an error and says in headers when to come
// back. They are those of draft-ietf-httpapi-ratelimit-headers-10.
func (s *server) count(c echo.Context, caller limit.Caller, limits limit.Limits) error {
	refusal, ok := s.buckets.Take(caller, limits)
	if ok {
		return nil
	}
	seconds := int64((refusal.Wait + time.Second - 1) / time.Second)
	policy := strconv.Quote(string(caller.Kind))
	header := c.Response().Header()
	header.Set(echo.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
	header.Set("RateLimit", fmt.Sprintf("%s;r=0;t=%d", policy, seconds))
	header.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d;w=%d", policy, limit.Quota(refusal.PerSecond), limit.Window/time.Second))
	return errorf(codeRateLimited, "Each %s may send %d requests a second here, and those of %d seconds at once.",
		caller.Kind, refusal.PerSecond, limit.Window/time.Second)
}
