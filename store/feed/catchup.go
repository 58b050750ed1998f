package feed

import (
	"context"
	"errors"
	"slices"

	"github.com/lastseen/lastseen/store"
)

// catchUp attaches the watcher to memory. If its positions are older, it reads changes from the store until they are
// not, and returns them, and whether there are any. An error leaves the positions as they were.
func (w *Watcher) catchUp(ctx context.Context, limit int) (Batch, bool, error) {
	if w.tryAttach(w.positions) {
		return Batch{}, false, nil
	}
	// The positions may be ahead, since they are of another process or of a snapshot.
	if err := w.f.waitForRead(ctx); err != nil {
		return Batch{}, false, err
	}
	if w.tryAttach(w.positions) {
		return Batch{}, false, nil
	}
	c := &catchUp{
		collector: collector{limit: limit, index: map[string]int{}},
		w:         w, positions: w.positions, left: w.hub.bounds.catchUp,
	}
	if !w.everyone {
		c.wanted = setOf(w.users)
	}
	b, err := c.run(ctx)
	if errors.Is(err, errBehind) {
		b, err = w.begin(ctx, true)
		return b, err == nil, err
	}
	return b, len(b.Users) > 0, err
}

func (w *Watcher) tryAttach(positions []store.Position) bool {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return w.attach(positions)
}

// catchUp reads the feed from the store for one watcher.
type catchUp struct {
	collector
	w         *Watcher
	wanted    set              // nil for everyone
	positions []store.Position // after what was collected
	left      int              // entries that may be read
}

// run returns the changes until the watcher is attached, or up to the limit of users. It returns errBehind if the
// changes after the positions are unknown.
func (c *catchUp) run(ctx context.Context) (Batch, error) {
	for tries := 0; tries < 3; {
		r, err := c.read(ctx)
		if err != nil {
			return Batch{}, err
		}
		full := !c.page(r)
		switch {
		case full:
			return c.more(r), nil
		case c.w.tryAttach(c.positions):
			return c.attached(), nil
		case c.wanted == nil && len(c.users) > 0 && r.More:
			return c.more(r), nil
		case c.left <= 0:
			return Batch{}, errBehind
		case r.More:
			continue
		}
		tries++ // the positions are ahead of memory again
		if err := c.w.f.waitForRead(ctx); err != nil {
			return Batch{}, err
		}
		if c.w.tryAttach(c.positions) {
			return c.attached(), nil
		}
	}
	return Batch{}, errBehind
}

func (c *catchUp) read(ctx context.Context) (*store.ChangesRead, error) {
	limit := c.w.hub.bounds.page
	if c.wanted == nil && c.left == c.w.hub.bounds.catchUp { // later pages follow only some that had no users
		limit = min(limit, c.limit)
	}
	r := &store.ChangesRead{Namespace: c.w.f.namespace, After: c.positions, Limit: limit}
	c.w.f.mu.Lock()
	shards := len(c.w.f.m.positions)
	c.w.f.mu.Unlock()
	if len(c.positions) != shards {
		return nil, errBehind
	}
	err := c.w.hub.withReadSlot(ctx, func() error {
		c.w.hub.o.Store.ReadChanges(ctx, []*store.ChangesRead{r})
		return r.Err
	})
	if errors.Is(err, store.ErrNotRecorded) || err == nil && (r.Reset || len(r.Positions) != shards) {
		return nil, errBehind
	}
	c.left -= len(r.Changes)
	return r, err
}

// page collects a page and moves the positions; false if it does not fit as a whole. It omits earlier changes of a user
// who is forgotten later in the page, since the batch can end before that.
func (c *catchUp) page(r *store.ChangesRead) bool {
	positions := slices.Clone(c.positions)
	forgotten := map[string]int{}
	for k := range r.Changes {
		if r.Changes[k].Forgotten() {
			forgotten[r.Changes[k].User] = k
		}
	}
	for k := range r.Changes {
		change := &r.Changes[k]
		if change.Contacts {
			c.contactsChanged(change.User)
		} else if (c.wanted == nil || c.wanted.has(change.User)) && k >= forgotten[change.User] {
			if !c.add(change.User, before(change), presenceAfter(change)) {
				c.positions = positions
				return false
			}
		}
		positions[change.Shard] = change.Position
	}
	c.positions = r.Positions
	return true
}

func (c *catchUp) contactsChanged(owner string) {
	c.w.f.mu.Lock()
	defer c.w.f.mu.Unlock()
	if c.w.owners.has(owner) {
		c.w.noticeContacts(owner)
	}
}

// more returns a batch after which the watcher still has to catch up.
func (c *catchUp) more(r *store.ChangesRead) Batch {
	c.w.f.mu.Lock()
	defer c.w.f.mu.Unlock()
	c.w.positions = c.positions
	return Batch{Users: c.updates(), More: true, AsOf: r.Watermark, Positions: c.positions}
}

// attached returns a batch after which the watcher continues from memory.
func (c *catchUp) attached() Batch {
	f := c.w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	return Batch{Users: c.updates(), More: c.w.attached && c.w.unread(), AsOf: f.asOf, Positions: c.positions}
}
