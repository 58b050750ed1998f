package limit

import "sync"

const minUserShare = 2 << 20 // bytes: room for the largest lookup

// Memory limits the memory for the bodies of all requests in progress. A body takes memory as its bytes arrive,
// and until the result of reading it is no longer used, so an announced length is free. Requests do not wait for
// memory: without it, a request fails at once.
//
// Each caller gets a share: an API key or an address without credentials a quarter, since many users or a whole backend
// can be behind either; a user with a JWT, who sends one lookup at a time, a 32nd. All callers without an API key
// together get three quarters, so that services always find a quarter free.
type Memory struct {
	limit   int64
	refused func(caller Policy, share int64) error

	mu      sync.Mutex
	used    int64         // by all bodies
	keyless int64         // part of used, by callers without an API key
	callers map[Key]int64 // part of used, by callers that have a share; zeros are not in the map
}

// NewMemory returns a memory of so many bytes. The function returns the error of a caller whose share, in bytes, is
// used up; with the share 0, that of all callers is.
func NewMemory(bytes int64, refused func(caller Policy, share int64) error) *Memory {
	return &Memory{limit: bytes, refused: refused, callers: map[Key]int64{}}
}

// Used returns how many bytes are used.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// share returns how much one caller can use.
func (m *Memory) share(p Policy) int64 {
	if p == PerUser {
		return max(m.limit/32, minUserShare)
	}
	return m.limit / 4
}

// Hold is the memory that one request holds. It is used by one goroutine.
type Hold struct {
	memory *Memory
	key    Key
	shared bool // whether the caller has a share; an address of this machine can be a proxy and has no share
	bytes  int64
}

// Hold returns an empty hold of a caller, who has a share or is not limited.
func (m *Memory) Hold(k Key, limited bool) *Hold { return &Hold{memory: m, key: k, shared: limited} }

// Grow takes n more bytes, or none and returns an error: see [NewMemory].
func (h *Hold) Grow(n int) error {
	m, bytes := h.memory, int64(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if share := m.share(h.key.Policy); h.shared && m.callers[h.key]+bytes > share {
		return m.refused(h.key.Policy, share)
	}
	if m.used+bytes > m.limit || h.keyless() && m.keyless+bytes > m.limit/4*3 {
		return m.refused(h.key.Policy, 0)
	}
	h.add(bytes)
	return nil
}

func (h *Hold) keyless() bool { return h.key.Policy != PerKey }

// Shrink gives n bytes back.
func (h *Hold) Shrink(n int) {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	h.add(-int64(n))
}

// Release gives all bytes back. The body must not be used afterwards.
func (h *Hold) Release() {
	if h.bytes > 0 {
		h.Shrink(int(h.bytes))
	}
}

// add counts bytes. The caller holds the mutex.
func (h *Hold) add(bytes int64) {
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
