package api

import (
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/limit"
)

// Memory for request bodies, in bytes.
const (
	// DefaultBodyMemory is how much there is unless [Config] says otherwise.
	DefaultBodyMemory = 64 << 20
	// MinBodyMemory leaves a caller room for one request of the largest kind.
	MinBodyMemory = 16 << 20

	freeBody      = 1 << 10 // of each body; not counted, since its connection takes more
	minUserShare  = 2 << 20 // room for one lookup of the largest kind
	bodyRetryWait = "1"     // seconds; a body that arrives at a usual pace is done with by then
)

// bodyMemory is the memory that the bodies of all requests in progress may take. A body takes it as its bytes
// arrive and while what was read from it is used, so the length that a caller announces takes nothing. Nobody
// waits for memory: a request that finds none fails at once and takes none.
//
// One caller gets a share: a quarter with an API key, or as an address without credentials, since many users or
// a whole backend may be behind either, and a 32nd as a user with a JWT, who sends one lookup at a time. All
// callers without an API key together get three quarters, so that services find a quarter free whatever others do.
type bodyMemory struct {
	limit int64

	mu      sync.Mutex
	used    int64                  // by all bodies
	keyless int64                  // of it, by callers without an API key
	callers map[limit.Caller]int64 // those that have a share; the ones that use nothing are not in it
}

func newBodyMemory(bytes int64) *bodyMemory {
	return &bodyMemory{limit: bytes, callers: map[limit.Caller]int64{}}
}

// share returns how much one caller of a kind may use.
func (m *bodyMemory) share(k limit.Kind) int64 {
	if k == limit.User {
		return max(m.limit/32, minUserShare)
	}
	return m.limit / 4
}

// bodyHold is what one request has of the memory. It is used by one goroutine.
type bodyHold struct {
	memory *bodyMemory
	caller limit.Caller
	shared bool // whether the caller has a share; an address of this machine may be a proxy's and has all
	bytes  int64
}

// hold returns a hold for the body of a request, of nothing at first.
func (s *server) hold(c echo.Context) bodyHold {
	who, counted := s.counted(c, callerOf(c))
	return bodyHold{memory: s.bodies, caller: who, shared: counted}
}

// grow takes so many more bytes, or none and returns an error of the code overloaded, or rate_limited if it is
// the caller that uses too many.
func (h *bodyHold) grow(n int) error {
	m, bytes := h.memory, int64(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.shared && m.callers[h.caller]+bytes > m.share(h.caller.Kind) {
		e := errorf(codeRateLimited, "Limit for one %s: %d KiB of request bodies at the same time. Send fewer requests at the same time.",
			h.caller.Kind, m.share(h.caller.Kind)>>10)
		e.retryAfter = bodyRetryWait
		return e
	}
	if m.used+bytes > m.limit || h.keyless() && m.keyless+bytes > m.limit/4*3 {
		return newError(codeOverloaded, "The memory for request bodies is in use. Try again later.")
	}
	h.add(bytes)
	return nil
}

func (h *bodyHold) keyless() bool { return h.caller.Kind != limit.Key }

// shrink gives so many bytes back.
func (h *bodyHold) shrink(n int) {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	h.add(-int64(n))
}

// release gives everything back. What was read must not be used any more.
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
	if m.callers[h.caller] += bytes; m.callers[h.caller] == 0 {
		delete(m.callers, h.caller)
	}
}
