package api

import (
	"sync"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// Memory for request bodies, in bytes.
const (
	// DefaultBodyMemory is the memory for the bodies of all requests, unless [Config] sets it.
	DefaultBodyMemory = 64 << 20
	// MinBodyMemory leaves a caller room for the largest request.
	MinBodyMemory = 24 << 20

	freeBody      = 1 << 10 // of each body; not counted, since its connection takes more
	minUserShare  = 2 << 20 // room for the largest lookup
	bodyRetryWait = 1       // seconds; a body that arrives at a usual pace is complete by then
)

// bodyMemory limits the memory for the bodies of all requests in progress. A body takes memory as its bytes arrive,
// and until the result of reading it is no longer used, so an announced length takes nothing. Requests do not wait for
// memory: without it, a request fails at once.
//
// Each caller gets a share: an API key or an address without credentials a quarter, since many users or a whole backend
// can be behind either; a user with a JWT, who sends one lookup at a time, a 32nd. All callers without an API key
// together get three quarters, so that services always find a quarter free.
type bodyMemory struct {
	limit int64

	mu      sync.Mutex
	used    int64               // by all bodies
	keyless int64               // part of used, by callers without an API key
	callers map[limit.Key]int64 // part of used, by callers that have a share; zeros are not in the map
}

func newBodyMemory(bytes int64) *bodyMemory {
	return &bodyMemory{limit: bytes, callers: map[limit.Key]int64{}}
}

// export registers metrics of the memory.
func (m *bodyMemory) export(register promauto.Factory) {
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_body_memory_bytes", Help: "Memory that request bodies take now.",
	}, func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return float64(m.used)
	})
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_body_memory_limit_bytes", Help: "Memory that request bodies can take.",
	}, func() float64 { return float64(m.limit) })
}

// share returns how much one caller can use.
func (m *bodyMemory) share(p limit.Policy) int64 {
	if p == limit.PerUser {
		return max(m.limit/32, minUserShare)
	}
	return m.limit / 4
}

// bodyHold is the memory that one request holds. It is used by one goroutine.
type bodyHold struct {
	memory *bodyMemory
	key    limit.Key
	shared bool // whether the caller has a share; an address of this machine can be a proxy and has no share
	bytes  int64
}

// hold returns an empty hold for the body of a request.
func (s *server) hold(c echo.Context) bodyHold {
	key, limited := s.limitKey(c, callerOf(c))
	return bodyHold{memory: s.bodies, key: key, shared: limited}
}

// grow takes n more bytes, or none and returns an error: the code is rate_limited if the caller's share is used up, and
// overloaded if the memory is.
func (h *bodyHold) grow(n int) error {
	m, bytes := h.memory, int64(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if share := m.share(h.key.Policy); h.shared && m.callers[h.key]+bytes > share {
		return problem.Errorf(problem.RateLimited,
			"Limit for one %s: %d KiB of request bodies at the same time. Send fewer requests at the same time.",
			h.key.Policy, share>>10).RetryAfter(bodyRetryWait)
	}
	if m.used+bytes > m.limit || h.keyless() && m.keyless+bytes > m.limit/4*3 {
		return problem.New(problem.Overloaded, "The memory for request bodies is in use. Try again later.")
	}
	h.add(bytes)
	return nil
}

func (h *bodyHold) keyless() bool { return h.key.Policy != limit.PerKey }

// shrink gives n bytes back.
func (h *bodyHold) shrink(n int) {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	h.add(-int64(n))
}

// release gives all bytes back. The body must not be used afterwards.
func (h *bodyHold) release() {
	if h.bytes > 0 {
		h.shrink(int(h.bytes))
	}
}

// add counts bytes. The caller holds the mutex.
func (h *bodyHold) add(bytes int64) {
	m := h.memory
	h.bytes += bytes
	m.used += bytes
	if h.keyless() {
		m.keyless += bytes
	}
	if !h.shared {
		return
	}
	if m.callers[h.key] += bytes; m.callers[h.key] == 0 {
		delete(m.callers, h.key)
	}
}
