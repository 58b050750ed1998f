package limit

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Distinct limits how many different names each caller uses. A name counts once, from its first use until a time after
// its last one ended. Its methods may be called concurrently.
//
// Names in use take memory until their uses end. The number of other names that count is bounded for all callers
// together: beyond it, the name whose use ended first no longer counts.
type Distinct struct {
	max   int
	after time.Duration
	now   func() time.Time
	seed  maphash.Seed

	mu    sync.Mutex
	uses  map[uint64]map[uint64]int        // of a caller, of a name: how many there are now
	ended *simplelru.LRU[named, time.Time] // names that are not in use, and until when they count, in this order
}

// named is the name that a caller uses. Both are hashes, so that all entries take the same space.
type named struct{ caller, name uint64 }

// NewDistinct limits each caller to so many names. A name counts for a time after its last use. At most size names, of
// all callers, do so at a time; size must be positive. The clock must not go backwards.
func NewDistinct(limit int, after time.Duration, size int, now func() time.Time) *Distinct {
	d := &Distinct{max: limit, after: after, now: now, seed: maphash.MakeSeed(), uses: map[uint64]map[uint64]int{}}
	d.ended, _ = simplelru.NewLRU(size, func(n named, _ time.Time) { d.forget(n) }) // fails only for other sizes
	return d
}

// Begin begins a use of a name. It returns a function that ends the use, to be called once. It returns false if the
// caller already uses as many other names as allowed.
func (d *Distinct) Begin(k Key, name string) (end func(), ok bool) {
	n := named{maphash.Comparable(d.seed, k), maphash.String(d.seed, name)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	names := d.uses[n.caller]
	if _, counts := names[n.name]; !counts && len(names) >= d.max {
		return nil, false
	}
	if names == nil {
		names = map[uint64]int{}
		d.uses[n.caller] = names
	}
	names[n.name]++
	d.ended.Remove(n) // which forgets nothing, since the name is in use
	return func() { d.end(n) }, true
}

// end ends a use.
func (d *Distinct) end(n named) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uses[n.caller][n.name]--; d.uses[n.caller][n.name] == 0 {
		d.ended.Add(n, d.now().Add(d.after))
	}
}

// expire forgets the names that no longer count. The caller holds the mutex, as for forget.
func (d *Distinct) expire() {
	for now := d.now(); ; d.ended.RemoveOldest() {
		if _, until, some := d.ended.GetOldest(); !some || now.Before(until) {
			return
		}
	}
}

// forget forgets a name, unless it is in use.
func (d *Distinct) forget(n named) {
	names := d.uses[n.caller]
	if names[n.name] > 0 {
		return
	}
	if delete(names, n.name); len(names) == 0 {
		delete(d.uses, n.caller)
	}
}
