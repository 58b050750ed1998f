package client

import (
	"context"
	"sync"
	"time"
)

// CacheOptions are settings of a [Cache]. The zero value has usable ones.
type CacheOptions struct {
	// MaxAge is how old a status may be: 5 seconds unless set. A status is never served past its ValidUntil, but within
	// MaxAge a user can ping or leave unnoticed.
	MaxAge time.Duration
	// MaxUsers is how many users are kept: 100,000 unless set, about 50 MB. Beyond it, any one is forgotten.
	MaxUsers int
}

// Cache keeps the presence of users whom many pages show. Users whom it does not know, or no longer, are looked up
// together, also those of concurrent calls.
type Cache struct {
	batch  *Batch
	maxAge time.Duration
	max    int
	now    func() time.Time // monotonic

	mu    sync.Mutex
	known map[string]cached
}

type cached struct {
	presence Presence
	until    time.Time // of the machine's clock
}

// Cache returns an empty cache for a namespace.
func (c *Client) Cache(namespace string, o CacheOptions) *Cache {
	return &Cache{
		batch: c.Batch(namespace), maxAge: orElse(o.MaxAge, 5*time.Second), max: orElse(o.MaxUsers, 100_000),
		now: time.Now, known: map[string]cached{},
	}
}

// Lookup returns the presence of users, in the order of the arguments. It fails as a whole: what it knew before is too
// old then, and a user whose status is unknown is not offline.
func (c *Cache) Lookup(ctx context.Context, users ...string) ([]Presence, error) {
	asked := c.now() // a status can be as old as the request for it
	all, missing, where := c.find(users, asked)
	if len(missing) == 0 {
		return all, nil
	}
	fresh, err := c.batch.Lookup(ctx, missing...)
	if err != nil {
		return nil, err
	}
	for i, p := range fresh {
		all[where[i]] = p
	}
	c.keep(fresh, asked)
	return all, nil
}

// find returns the users that are known, and which are missing, with their places.
func (c *Cache) find(users []string, now time.Time) (all []Presence, missing []string, where []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = make([]Presence, len(users))
	for i, user := range users {
		if k, ok := c.known[user]; ok && now.Before(k.until) {
			all[i] = k.presence
			continue
		}
		missing, where = append(missing, user), append(where, i)
	}
	return all, missing, where
}

func (c *Cache) keep(fresh []Presence, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range fresh {
		lasts := c.maxAge
		if !p.ValidUntil.IsZero() {
			lasts = min(lasts, p.ValidFor())
		}
		if _, ok := c.known[p.User]; !ok && len(c.known) >= c.max {
			for user := range c.known {
				delete(c.known, user)
				break
			}
		}
		c.known[p.User] = cached{p, asked.Add(lasts)}
	}
}
