package limit

import (
	"hash/maphash"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Redials are the last calls of callers to callees that a server began. Its methods may be called concurrently.
type Redials struct {
	seed maphash.Seed
	mu   sync.Mutex
	last *lru.Cache[uint64, Redial] // by the hash of both users, so that all entries take the same space
}

// Redial is a call, and how many before it, one after the other, were not answered.
type Redial struct {
	ID         string
	Unanswered int
	Over       time.Time // when the call ended, if the caller tried again since
}

// NewRedials returns no calls yet.
func NewRedials() *Redials {
	last, _ := lru.New[uint64, Redial](DefaultSize) // fails only for a size that is not positive
	return &Redials{seed: maphash.MakeSeed(), last: last}
}

func (r *Redials) key(namespace, from, to string) uint64 {
	return maphash.Comparable(r.seed, [...]string{namespace, from, to})
}

// Get returns the last call of a caller to a callee; the zero value if there is none.
func (r *Redials) Get(namespace, from, to string) Redial {
	last, _ := r.last.Get(r.key(namespace, from, to))
	return last
}

// Set notes the last call of a caller to a callee.
func (r *Redials) Set(namespace, from, to string, last Redial) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.Add(r.key(namespace, from, to), last)
}

// SetOver notes when a call ended, if it is the last one of its parties.
func (r *Redials) SetOver(namespace, from, to, id string, at time.Time) {
	key := r.key(namespace, from, to)
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, _ := r.last.Peek(key); last.ID == id {
		last.Over = at
		r.last.Add(key, last)
	}
}
