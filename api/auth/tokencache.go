package auth

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Bounds of the cache, in bytes: of all entries, and of one. 16 MiB hold some 35,000 usual tokens. A token with more
// namespaces than fit into maxEntryBytes is verified at every request, since it would evict many others.
const (
	maxCacheBytes = 16 << 20
	maxEntryBytes = 2 << 10
)

// Sizes in bytes without the texts: of an entry with its place in the map and its caller, and of each namespace.
const (
	entryBytes     = 404
	namespaceBytes = 16
)

// tokenCache holds the callers of recently verified tokens: a user sends the same token with every ping, and verifying
// it costs several times what the ping does. An entry is valid until the token expires or the issuer's keys change;
// nothing else can change the result of verification. The cache holds hashes of tokens, not tokens. Its methods may be
// called concurrently.
type tokenCache struct {
	limit  int64 // of used
	mu     sync.Mutex
	tokens *simplelru.LRU[[sha256.Size]byte, verified] // guarded by mu
	used   int64                                       // bytes of all entries, guarded by mu
}

// verified is the result of verifying a token.
type verified struct {
	caller *Caller
	keys   int64 // the version of the keys that verified it
}

// bytes returns how much memory the entry takes.
func (v verified) bytes() int64 {
	size := entryBytes + roundUp(len(v.caller.Name)) + namespaceBytes*len(v.caller.namespaces)
	for _, p := range v.caller.namespaces {
		size += roundUp(len(p))
	}
	return int64(size)
}

// roundUp returns the bytes that the allocator takes for a text of a length: at most a quarter more.
func roundUp(length int) int { return (length*5/4 + 15) &^ 15 }

// newTokenCache returns a cache of limit bytes, which must be at least the size of the largest entry.
func newTokenCache(limit int64) *tokenCache {
	c := &tokenCache{limit: limit}
	// The number of entries is bounded by their bytes. NewLRU fails only for a size that is not positive.
	c.tokens, _ = simplelru.NewLRU(int(limit/entryBytes), func(_ [sha256.Size]byte, v verified) { c.used -= v.bytes() })
	return c
}

// find returns the caller of the token with a hash; nil if the token has to be verified.
func (c *tokenCache) find(hash [sha256.Size]byte, now time.Time, keys int64) *Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.tokens.Get(hash)
	switch {
	case !ok:
		return nil
	case found.keys != keys || !now.Before(found.caller.Expires):
		c.tokens.Remove(hash)
		return nil
	}
	return found.caller
}

// add adds a token by its hash, unless it is too large, and evicts the least recently used ones to make room.
func (c *tokenCache) add(hash [sha256.Size]byte, v verified) {
	size := v.bytes()
	if size > maxEntryBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens.Remove(hash) // two requests can verify a token at the same time
	for c.used+size > c.limit {
		c.tokens.RemoveOldest()
	}
	c.used += size
	c.tokens.Add(hash, v) // there is room by number, too
}
