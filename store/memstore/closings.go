package memstore

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// closings are the connections that this process was asked to close. They are in memory only: a restart closes all
// connections.
type closings struct {
	monotonic func() time.Duration // closings age by it: a clock that is set neither deletes nor keeps them
	epoch     string               // random: the first part of places

	mu    sync.Mutex
	asked []closing                   // in order; can have several of a user
	last  map[lastseen.UserKey]uint64 // the number of the newest one of each user: the others do not count
	next  uint64                      // the number of the next one
}

type closing struct {
	store.Closing
	number uint64
	at     time.Duration // when it was asked, by the monotonic clock
}

func newClosings(monotonic func() time.Duration) *closings {
	epoch := strconv.FormatUint(rand.Uint64(), 36) + "-"
	return &closings{monotonic: monotonic, epoch: epoch, last: map[lastseen.UserKey]uint64{}, next: 1}
}

// CloseConnections implements [store.Store].
func (s *Store) CloseConnections(ctx context.Context, namespace, user string) error {
	return s.read(ctx, func(*index) {
		s.closings.add(store.Closing{
			Namespace: strings.Clone(namespace), User: strings.Clone(user), At: s.tables.readClock(), // copies
		})
	})
}

// Closings implements [store.Store].
func (s *Store) Closings(
	ctx context.Context, after store.ClosingPlace,
) (found []store.Closing, next store.ClosingPlace, err error) {
	err = s.read(ctx, func(*index) { found, next = s.closings.after(after) })
	return found, next, err
}

func (c *closings) add(asked store.Closing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, closing{asked, c.next, c.monotonic()})
	c.last[lastseen.UserKey{Namespace: asked.Namespace, User: asked.User}] = c.next
	c.next++
	c.trim()
	if len(c.asked) > 2*len(c.last)+minClosings {
		c.asked = slices.DeleteFunc(c.asked, func(old closing) bool { return !c.counts(old) })
	}
}

// minClosings is the number of closings below which those that do not count stay in memory.
const minClosings = 64

// counts reports whether a closing is the newest one of its user.
func (c *closings) counts(asked closing) bool {
	return c.last[lastseen.UserKey{Namespace: asked.Namespace, User: asked.User}] == asked.number
}

// trim deletes closings that are too old or too many.
func (c *closings) trim() {
	now := c.monotonic()
	for len(c.asked) > 0 {
		first := c.asked[0]
		switch {
		case !c.counts(first):
		case len(c.last) > store.MaxClosings || now-first.at > store.ClosingsKept:
			delete(c.last, lastseen.UserKey{Namespace: first.Namespace, User: first.User})
		default:
			return
		}
		c.asked = c.asked[1:]
	}
	c.asked = nil
}

// after returns the closings after a place, and the next place. After a place that this store did not return, that is
// all of them.
func (c *closings) after(place store.ClosingPlace) (found []store.Closing, next store.ClosingPlace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trim()
	next = store.ClosingPlace(c.epoch + strconv.FormatUint(c.next, 10))
	if place == "" {
		return nil, next
	}
	from := c.number(place)
	begin, _ := slices.BinarySearchFunc(c.asked, from, func(a closing, number uint64) int {
		return cmp.Compare(a.number, number)
	})
	for _, asked := range c.asked[begin:] {
		if c.counts(asked) {
			found = append(found, asked.Closing)
		}
	}
	return found, next
}

// number returns the number of the first closing after a place.
func (c *closings) number(place store.ClosingPlace) uint64 {
	digits, ours := strings.CutPrefix(string(place), c.epoch)
	number, err := strconv.ParseUint(digits, 10, 64)
	if !ours || err != nil || number > c.next {
		return 0
	}
	return number
}
