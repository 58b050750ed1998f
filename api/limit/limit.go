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

// of returns the limit that holds for callers of a kind.
func (l Limits) of(k Kind) int {
	if k == User {
		return l.User
	}
	return l.Caller
}

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
	Kind    Kind
	name    string // of the key or the user
	issuer  string // that says who the user is
	address netip.Addr
}

// AtAddress returns the caller at an address. Whoever has an IPv6 address has all those that begin with the
// same 64 bits, so they are one caller.
func AtAddress(a netip.Addr) Caller {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		network, _ := a.Prefix(64) // fails for more bits than there are only
		a = network.Addr()
	}
	return Caller{Kind: Address, address: a}
}

// WithKey returns the caller who has the API key of that name.
func WithKey(name string) Caller { return Caller{Kind: Key, name: name} }

// AsUser returns the caller who is a user, as an issuer of JWTs says.
func AsUser(issuer, user string) Caller { return Caller{Kind: User, name: user, issuer: issuer} }

// Window is how long an empty bucket takes to fill. It holds the requests of so long, so a caller who paused
// may send that many at once.
const Window = 5 * time.Second

// Burst is how many tokens a bucket holds that gets so many a second.
func Burst(perSecond int) int { return perSecond * int(Window/time.Second) }

// DefaultSize is how many buckets are enough. They take 15 MB.
const DefaultSize = 1 << 16

// Buckets are those of all callers. They may be used concurrently.
type Buckets struct {
	now  func() time.Time
	seed maphash.Seed
	kept *lru.Cache[uint64, *rate.Limiter] // by the hash of a caller, so that each takes the same room
}

// New returns buckets, at most size of them, which has to be positive. The clock must not go backwards; time.Now
// does not, whatever happens to the wall clock.
func New(size int, now func() time.Time) *Buckets {
	kept, _ := lru.New[uint64, *rate.Limiter](size) // fails for a size that is not positive only
	return &Buckets{now: now, seed: maphash.MakeSeed(), kept: kept}
}

// Exceeded is why a request is not to be answered.
type Exceeded struct {
	PerSecond int           // the limit that holds for the caller
	Wait      time.Duration // until the next request will be answered; positive
}

// Allow takes a token for a request out of the caller's bucket. If there is none left it returns false, and why.
func (b *Buckets) Allow(c Caller, l Limits) (Exceeded, bool) {
	perSecond := l.of(c.Kind)
	if perSecond == 0 {
		return Exceeded{}, true
	}
	now := b.now()
	bucket := b.bucket(c, perSecond, now)
	if bucket.AllowN(now, 1) {
		return Exceeded{}, true
	}
	missing := (1 - bucket.TokensAt(now)) / float64(perSecond) * float64(time.Second)
	return Exceeded{perSecond, max(1, time.Duration(math.Ceil(missing)))}, false
}

// bucket returns the caller's, which fills as is set now.
func (b *Buckets) bucket(c Caller, perSecond int, now time.Time) *rate.Limiter {
	id := maphash.Comparable(b.seed, c)
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
