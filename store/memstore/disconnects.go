package memstore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// disconnects are the connections that this process was asked to close. They are in memory only: a restart closes all
// connections.
type disconnects struct {
	monotonic func() time.Duration // disconnects age by it: a clock that is set neither deletes nor keeps them
	epoch     epoch

	mu    sync.Mutex
	asked btree.Map[uint64, disconnect] // by number, in order: the newest one of each user
	last  map[lastseen.UserKey]uint64   // the number of each user
	next  uint64                        // the number of the next one
}

type disconnect struct {
	store.Disconnect
	at time.Duration // when it was asked, by the monotonic clock
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
	user := lastseen.UserKey{Namespace: asked.Namespace, User: asked.User}
	c.asked.Delete(c.last[user])
	c.asked.Set(c.next, disconnect{asked, c.monotonic()})
	c.last[user] = c.next
	c.next++
	c.trim()
}

// trim deletes disconnects that are too old or too many.
func (c *disconnects) trim() {
	now := c.monotonic()
	for {
		number, first, ok := c.asked.Min()
		if !ok || c.asked.Len() <= store.MaxDisconnects && now-first.at <= store.DisconnectsKept {
			return
		}
		c.asked.Delete(number)
		delete(c.last, lastseen.UserKey{Namespace: first.Namespace, User: first.User})
	}
}

// after returns the disconnects after a position, and the next position. After a position that this store did not
// return, that is all of them.
func (c *disconnects) after(p store.DisconnectPosition) (found []store.Disconnect, next store.DisconnectPosition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trim()
	next = store.DisconnectPosition(c.epoch.position(c.next))
	if p == "" {
		return nil, next
	}
	first, _ := c.epoch.number(string(p))
	if first > c.next {
		first = 0
	}
	c.asked.Ascend(first, func(_ uint64, asked disconnect) bool {
		found = append(found, asked.Disconnect)
		return true
	})
	return found, next
}
