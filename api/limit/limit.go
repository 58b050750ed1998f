// Package limit limits rates of requests: each caller has a bucket that fills with tokens at a steady rate, and every
// request takes one token out of it.
//
// Buckets are in memory. Their number is bounded: the least recently seen caller is evicted and starts over with a full
// bucket. A caller that sends enough requests for a limit to matter is not evicted. Each server counts on its own.
//
// [Distinct] limits how many different things a caller uses at the same time, and [Memory] the memory for its requests.
package limit

import (
	"hash/maphash"
	"math"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Limits are maximum numbers of requests per second; 0 is unlimited.
type Limits struct {
	Caller int // of one API key, of one address without valid credentials, or of a party of a call
	User   int // of one user with a JWT
}

// Policy is the name of what requests are counted by.
type Policy string

// The policies.
const (
	PerAddress Policy = "address"
	PerKey     Policy = "key"
	PerUser    Policy = "user"
	PerCall    Policy = "call"
)

// Key identifies a caller that requests are charged to.
type Key struct {
	Policy  Policy
	name    string // of the API key or the user
	issuer  string // of the user
	address netip.Addr
}

// ByAddress returns the key of the callers at an address. IPv6 addresses with the same first 64 bits share a key, since
// a client has all of them.
func ByAddress(a netip.Addr) Key {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		network, _ := a.Prefix(64) // fails only for more bits than the address has
		a = network.Addr()
	}
	return Key{Policy: PerAddress, address: a}
}

// ByAPIKey returns the key of the caller with the API key of that name.
func ByAPIKey(name string) Key { return Key{Policy: PerKey, name: name} }

// ByUser returns the key of a user, by the issuer of JWTs.
func ByUser(issuer, user string) Key { return Key{Policy: PerUser, name: user, issuer: issuer} }

// ByCall returns the key of a party of a call.
func ByCall(namespace, call, user string) Key {
	return Key{Policy: PerCall, name: user, issuer: namespace + "/" + call}
}

// Window is the time in which an empty bucket fills.
const Window = 5 * time.Second

// Burst returns how many tokens a bucket holds that fills at a rate per second. After a pause, a caller can send that
// many requests at once.
func Burst(perSecond int) int { return perSecond * int(Window/time.Second) }

// DefaultSize is a number of buckets for a server. They take 15 MB.
const DefaultSize = 1 << 16

// Buckets are the buckets of all callers. Its methods may be called concurrently.
type Buckets struct {
	now  func() time.Time
	seed maphash.Seed
	kept *lru.Cache[uint64, *rate.Limiter] // by the hash of a key, so that all entries take the same space
}

// New returns at most size buckets, which must be positive. The clock must not go backwards: time.Now does not, even if
// the wall clock is set.
func New(size int, now func() time.Time) *Buckets {
	kept, _ := lru.New[uint64, *rate.Limiter](size) // fails only for a size that is not positive
	return &Buckets{now: now, seed: maphash.MakeSeed(), kept: kept}
}

// Exceeded describes a limit that a caller exceeded.
type Exceeded struct {
	PerSecond int           // the limit of the caller
	Wait      time.Duration // until the next request is allowed; positive
}

// AllowN takes n tokens out of a bucket, but at most half of those that a full bucket holds. It takes none and returns
// false, and the limit, if fewer are left.
func (b *Buckets) AllowN(k Key, l Limits, n int) (Exceeded, bool) {
	perSecond := l.Caller
	if k.Policy == PerUser {
		perSecond = l.User
	}
	if perSecond == 0 {
		return Exceeded{}, true
	}
	now := b.now()
	bucket := b.bucket(k, perSecond, now)
	n = min(n, Burst(perSecond)/2)
	if bucket.AllowN(now, n) {
		return Exceeded{}, true
	}
	missing := (float64(n) - bucket.TokensAt(now)) / float64(perSecond) * float64(time.Second)
	return Exceeded{perSecond, max(1, time.Duration(math.Ceil(missing)))}, false
}

// bucket returns the bucket of a caller, which fills at the rate of the current limit.
func (b *Buckets) bucket(k Key, perSecond int, now time.Time) *rate.Limiter {
	id := maphash.Comparable(b.seed, k)
	bucket, known := b.kept.Get(id)
	if !known {
		bucket = rate.NewLimiter(rate.Limit(perSecond), Burst(perSecond))
		if other, late, _ := b.kept.PeekOrAdd(id, bucket); late {
			bucket = other
		}
	}
	if bucket.Limit() != rate.Limit(perSecond) { // it was made before a reload
		bucket.SetLimitAt(now, rate.Limit(perSecond))
		bucket.SetBurstAt(now, Burst(perSecond))
	}
	return bucket
}
