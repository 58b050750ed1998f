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

// disconnects are the connections that this process was asked to close. They are in memory only: a restart closes all
// connections.
type disconnects struct {
	monotonic func() time.Duration // disconnects age by it: a clock that is set neither deletes nor keeps them
	epoch     string               // random: the first part of positions

	mu    sync.Mutex
	asked []disconnect                // in order; can have several of a user
	last  map[lastseen.UserKey]uint64 // the number of the newest one of each user: the others do not count
	next  uint64                      // the number of the next one
}

type disconnect struct {
	store.Disconnect
	number uint64
	at     time.Duration // when it was asked, by the monotonic clock
}

func newDisconnects(monotonic func() time.Duration) *disconnects {
	epoch := strconv.FormatUint(rand.Uint64(), 36) + "-"
	return &disconnects{monotonic: monotonic, epoch: epoch, last: map[lastseen.UserKey]uint64{}, next: 1}
}

// CloseConnections implements [store.Store].
func (s *Store) CloseConnections(ctx context.Context, namespace, user string) error {
	return s.read(ctx, func(*index) {
		s.disconnects.add(store.Disconnect{
			Namespace: strings.Clone(namespace), User: strings.Clone(user), At: s.tables.readClock(), // copies
		})
	})
}

// Disconnects implements [store.Store].
func (s *Store) Disconnects(
	ctx context.Context, after store.DisconnectPosition,
) (found []store.Disconnect, next store.DisconnectPosition, err error) {
	err = s.read(ctx, func(*index) { found, next = s.disconnects.after(after) })
	return found, next, err
}

func (c *disconnects) add(asked store.Disconnect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, disconnect{asked, c.next, c.monotonic()})
	c.last[lastseen.UserKey{Namespace: asked.Namespace, User: asked.User}] = c.next
	c.next++
	c.trim()
	if len(c.asked) > 2*len(c.last)+minDisconnects {
		c.asked = slices.DeleteFunc(c.asked, func(old disconnect) bool { return !c.counts(old) })
	}
}

// minDisconnects is the number of disconnects below which those that do not count stay in memory.
const minDisconnects = 64

// counts reports whether a disconnect is the newest one of its user.
func (c *disconnects) counts(asked disconnect) bool {
	return c.last[lastseen.UserKey{Namespace: asked.Namespace, User: asked.User}] == asked.number
}

// trim deletes disconnects that are too old or too many.
func (c *disconnects) trim() {
	now := c.monotonic()
	for len(c.asked) > 0 {
		first := c.asked[0]
		switch {
		case !c.counts(first):
		case len(c.last) > store.MaxDisconnects || now-first.at > store.DisconnectsKept:
			delete(c.last, lastseen.UserKey{Namespace: first.Namespace, User: first.User})
		default:
			return
		}
		c.asked = c.asked[1:]
	}
	c.asked = nil
}

// after returns the disconnects after a position, and the next position. After a position that this store did not
// return, that is all of them.
func (c *disconnects) after(p store.DisconnectPosition) (found []store.Disconnect, next store.DisconnectPosition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trim()
	next = store.DisconnectPosition(c.epoch + strconv.FormatUint(c.next, 10))
	if p == "" {
		return nil, next
	}
	from := c.number(p)
	begin, _ := slices.BinarySearchFunc(c.asked, from, func(a disconnect, number uint64) int {
		return cmp.Compare(a.number, number)
	})
	for _, asked := range c.asked[begin:] {
		if c.counts(asked) {
			found = append(found, asked.Disconnect)
		}
	}
	return found, next
}

// number returns the number of the first disconnect after a position.
func (c *disconnects) number(position store.DisconnectPosition) uint64 {
	digits, ours := strings.CutPrefix(string(position), c.epoch)
	number, err := strconv.ParseUint(digits, 10, 64)
	if !ours || err != nil || number > c.next {
		return 0
	}
	return number
}
