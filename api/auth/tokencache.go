package auth

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Bounds of the cache of verified tokens, in bytes: of all entries, and of one. 16 MiB hold some 35,000 usual tokens. A
// token with more namespaces than fit into maxEntryBytes is verified at every request: it would push out many others.
const (
	maxRecentBytes = 16 << 20
	maxEntryBytes  = 2 << 10
)

// What an entry takes in bytes beside its texts: the entry, its place in the map, and the caller; and for each namespace.
const (
	entryBytes     = 380
	namespaceBytes = 16
)

// recent remembers whose the tokens are that were verified lately: a user sends the same one with every ping, and
// verifying it costs several times what the ping does. What is remembered is what verifying would say again, since
// only two things can change that: the token expires, or its issuer changes the keys. Tokens themselves are not kept,
// only their hashes. It may be used concurrently.
type recent struct {
	limit  int64 // of used
	mu     sync.Mutex
	tokens *simplelru.LRU[[sha256.Size]byte, verified] // guarded by mu
	used   int64                                       // bytes of all entries, guarded by mu
}

// verified is what was found about a token.
type verified struct {
	caller  *Caller
	expires time.Time
	keys    int64 // the version of the keys by which it was verified
}

// bytes returns how much memory the entry takes.
func (v verified) bytes() int64 {
	size := entryBytes + roundUp(len(v.caller.Name)) + namespaceBytes*len(v.caller.namespaces)
	for _, p := range v.caller.namespaces {
		size += roundUp(len(p))
	}
	return int64(size)
}

// roundUp returns the bytes that the allocator takes for a text of some length, which is at most a quarter more.
func roundUp(length int) int { return (length*5/4 + 15) &^ 15 }

// newRecent returns a cache of so many bytes, which are at least those of the largest entry.
func newRecent(limit int64) *recent {
	r := &recent{limit: limit}
	// The number of entries is bounded by their bytes. NewLRU fails for a size that is not positive only.
	r.tokens, _ = simplelru.NewLRU(int(limit/entryBytes), func(_ [sha256.Size]byte, v verified) { r.used -= v.bytes() })
	return r
}

// find returns the caller whose token has a hash; nil if the token has to be verified.
func (r *recent) find(hash [sha256.Size]byte, now time.Time, keys int64) *Caller {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, there := r.tokens.Get(hash)
	switch {
	case !there:
		return nil
	case found.keys != keys || !now.Before(found.expires):
		r.tokens.Remove(hash)
		return nil
	}
	return found.caller
}

// add remembers a token by its hash, unless it is too large, and forgets those used least recently to make room.
func (r *recent) add(hash [sha256.Size]byte, v verified) {
	size := v.bytes()
	if size > maxEntryBytes {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens.Remove(hash) // two requests may have verified it at the same time
	for r.used+size > r.limit {
		r.tokens.RemoveOldest()
	}
	r.used += size
	r.tokens.Add(hash, v) // there is room by number, too
}

// len returns how many tokens are remembered.
func (r *recent) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens.Len()
}

// bytes returns how much memory they take.
func (r *recent) bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
