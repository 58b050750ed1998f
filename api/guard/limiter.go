package guard

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// Limiter charges requests to their callers.
type Limiter struct {
	Buckets    *limit.Buckets
	Limits     limit.Limits // of a caller; the zero value is for none
	Proxies    Proxies
	Random     func() float64     // in [0, 1), for jitter
	Exceeded   func(limit.Policy) // is called for each refusal
	Pseudonyms Pseudonyms         // of users, for the log
}

// Charge charges n requests to the limit of the caller who sent a request, and returns an error if that is exceeded.
// Many count as at most half of a burst.
func (l *Limiter) Charge(r *http.Request, caller *auth.Caller, n int) error {
	if l.Limits == (limit.Limits{}) {
		return nil
	}
	key, limited := l.Key(r, caller)
	return l.ChargeKey(key, limited, n)
}

// ChargeKey charges n requests to a key, unless it is not limited.
func (l *Limiter) ChargeKey(key limit.Key, limited bool, n int) error {
	if !limited || l.Limits == (limit.Limits{}) {
		return nil
	}
	return l.ChargeWithin(key, l.Limits, n)
}

// ChargeWithin charges n requests to a key.
func (l *Limiter) ChargeWithin(key limit.Key, limits limit.Limits, n int) error {
	exceeded, ok := l.Buckets.AllowN(key, limits, n)
	if ok {
		return nil
	}
	l.Exceeded(key.Policy)
	burst, seconds := limit.Burst(exceeded.PerSecond), WholeSeconds(exceeded.Wait)
	wait := seconds
	if key.Policy == limit.PerAddress { // many users can be behind it, who must not come back together
		wait += int64(l.Random() * limit.Window.Seconds())
	}
	e := problem.Errorf(problem.RateLimited, "Rate limit for one %s: %d requests per second, and bursts of up to %d.",
		key.Policy, exceeded.PerSecond, burst).RetryAfter(wait)
	e.Header["RateLimit"] = fmt.Sprintf("%q;r=0;t=%d", key.Policy, seconds) // draft-ietf-httpapi-ratelimit-headers-10
	e.Header["RateLimit-Policy"] = fmt.Sprintf("%q;q=%d;w=%d", key.Policy, burst, limit.Window/time.Second)
	return e
}

// WholeSeconds returns a time in seconds, rounded up, as in the header Retry-After.
func WholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// Pay charges what comes on a connection to the caller: a large frame, before it is parsed, or a page. If the limit is
// exceeded, it waits. An error would end the connection of a client that sends little otherwise.
func (l *Limiter) Pay(key limit.Key, limited bool, requests int) {
	if !limited {
		return
	}
	if exceeded, ok := l.Buckets.AllowN(key, l.Limits, requests); !ok {
		time.Sleep(exceeded.Wait)                        // half of limit.Window at most
		_, _ = l.Buckets.AllowN(key, l.Limits, requests) // others may have been faster: one wait is enough
	}
}

// Key returns what a request is charged to: the API key or the user of an authenticated caller, and the address of
// others. Connections from this machine are not limited, unless a trusted proxy forwards them: a proxy that is not
// configured would be one caller for all.
func (l *Limiter) Key(r *http.Request, caller *auth.Caller) (key limit.Key, limited bool) {
	if caller == nil || caller.IsAnonymous() {
		return limit.ByAddress(l.Proxies.Client(r)), !l.Proxies.IsLocal(r) // requests without an address share a key
	}
	return CallerKey(caller), true
}

// ErrBodyMemory returns the error of a caller whose share of the memory for bodies, in bytes, is used up; with the
// share 0, that of all callers is.
func ErrBodyMemory(caller limit.Policy, share int64) error {
	if share == 0 {
		return problem.New(problem.Overloaded, "The memory for request bodies is in use. Try again later.")
	}
	return problem.Errorf(problem.RateLimited,
		"Limit for one %s: %d KiB of request bodies at the same time. Send fewer requests at the same time.",
		caller, share>>10).RetryAfter(1) // second: a body that arrives at a usual pace is complete by then
}

// ExportMemory registers metrics of the memory for bodies.
func ExportMemory(register promauto.Factory, bodies *limit.Memory, max int64) {
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_body_memory_bytes", Help: "Memory that request bodies take now.",
	}, func() float64 { return float64(bodies.Used()) })
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_body_memory_limit_bytes", Help: "Memory that request bodies can take.",
	}, func() float64 { return float64(max) })
}

// CallerKey returns the key of an authenticated caller.
func CallerKey(caller *auth.Caller) limit.Key {
	if caller.Kind == auth.ByKey {
		return limit.ByAPIKey(caller.Name)
	}
	return limit.ByUser(caller.Issuer, caller.Name)
}
