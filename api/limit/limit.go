// Package limit counts requests: each caller has a bucket that fills at a steady rate, and every request
// takes one token out of it.
//
// Buckets are in memory, a bounded number of them however many callers come: who has not been heard of for
// longest loses theirs, and begins with a full one. Whoever asks so often that a limit matters keeps theirs.
// Each server counts for itself.
package limit

import (
	"hash/maphash"
	"math"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Limits are how many requests a second are answered; 0 for any number.
type Limits struct {
	Caller int // of one API key, or of one address that nobody proved to be a key or a user
	User   int // of one user of a JWT
}

// Window is how long a bucket takes to fill. It holds the requests of so long, so a caller who paused may
// send that many at once.
const Window = 5 * time.Second

// Quota is how many tokens a bucket holds that fills at a rate of so many a second.
func Quota(perSecond int) int { return perSecond * int(Window/time.Second) }

// Kind is what a caller is told apart by.
type Kind string

// The kinds of callers.
const (
	Address Kind = "address"
	Key     Kind = "key"
	User    Kind = "user"
)

// Caller is whom requests are counted for.
type Caller struct {
	Kind   Kind
	name   string
	issuer string
	addr   netip.Addr
}

// AtAddress returns the caller at an address. Whoever has an IPv6 address has all those that begin with the
// same 64 bits, so they are one caller.
func AtAddress(a netip.Addr) Caller {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		network, _ := a.Prefix(64) // fails for a length that cannot be only
		a = network.Addr()
	}
	return Caller{Kind: Address, addr: a}
}

// WithKey returns the caller with the API key of that name.
func WithKey(name string) Caller { return Caller{Kind: Key, name: name} }

// AsUser returns the caller who is a user, by what an issuer of JWTs says.
func AsUser(issuer, user string) Caller { return Caller{Kind: User, name: user, issuer: issuer} }

// buckets are kept in shards, so that processors seldom wait for each other.
const shards = 16

// DefaultSize is how many buckets are kept; together they take about 20 MB.
const DefaultSize = 1 << 16

// Buckets are those of all callers. They may be used concurrently.
type Buckets struct {
	now    func() time.Time
	seed   maphash.Seed
	shards [shards]*lru.Cache[uint64, *rate.Limiter]
}

// New returns buckets for at least size callers, which has to be positive. The clock need not be monotonic.
func New(size int, now func() time.Time) *Buckets {
	b := &Buckets{now: now, seed: maphash.MakeSeed()}
	for i := range b.shards {
		b.shards[i], _ = lru.New[uint64, *rate.Limiter]((size + shards - 1) / shards) // fails for a size that is not positive only
	}
	return b
}

// Take takes a token for a request out of the caller's bucket, which fills at a rate of so many a second, or
// any number if that is 0. If there is none left it returns how long until there will be one, and otherwise 0.
func (b *Buckets) Take(c Caller, perSecond int) (wait time.Duration) {
	if perSecond == 0 {
		return 0
	}
	now, bucket := b.now(), b.bucket(c, perSecond)
	if bucket.AllowN(now, 1) {
		return 0
	}
	missing := 1 - bucket.TokensAt(now)
	return max(1, time.Duration(math.Ceil(missing/float64(perSecond)*float64(time.Second))))
}

// bucket returns the caller's, with the rate as it is set now. A caller is known by a hash, so that a bucket
// takes the same room whatever the caller is called.
func (b *Buckets) bucket(c Caller, perSecond int) *rate.Limiter {
	id := maphash.Comparable(b.seed, c)
	shard := b.shards[id%shards]
	bucket, known := shard.Get(id)
	if !known {
		bucket = rate.NewLimiter(rate.Limit(perSecond), Quota(perSecond))
		if other, raced, _ := shard.PeekOrAdd(id, bucket); raced {
			return other
		}
	}
	if bucket.Limit() != rate.Limit(perSecond) {
		now := b.now()
		bucket.SetLimitAt(now, rate.Limit(perSecond))
		bucket.SetBurstAt(now, Quota(perSecond))
	}
	return bucket
}
