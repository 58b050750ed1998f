package client

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// CacheOptions are settings of a [Cache]. The zero value has usable ones.
type CacheOptions struct {
	// MaxAge is how old a status may be when a lookup returns: 5 seconds unless set. Within it, a user can ping or
	// leave unnoticed. A status is never served past its ValidUntil.
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
	presence     Presence
	asked, until time.Time // of the machine's clock
}

// Cache returns an empty cache for a namespace.
func (c *Client) Cache(namespace string, o CacheOptions) *Cache {
	return &Cache{
		batch: c.Batch(namespace), maxAge: cmp.Or(o.MaxAge, 5*time.Second), max: cmp.Or(o.MaxUsers, 100_000),
		now: time.Now, known: map[string]cached{},
	}
}

// Lookup returns the presence of users, in the order of the arguments, with AsOf as now. It fails as a whole: what it
// knew before is too old then, and a user whose status is unknown is not offline.
func (c *Cache) Lookup(ctx context.Context, users ...string) ([]Presence, error) {
	asked := c.now() // a status can be as old as the request for it
	all, missing := c.find(users)
	if len(missing) == 0 {
		return all, nil
	}
	fresh, err := c.batch.Lookup(ctx, missing...)
	if err != nil {
		return nil, err
	}
	c.keep(fresh, asked)
	if all, missing = c.find(users); len(missing) == 0 {
		return all, nil
	}
	// The answer came late, or there are more users than are kept.
	return c.batch.Lookup(ctx, users...)
}

// find returns the users that are known, and which are missing.
func (c *Cache) find(users []string) (all []Presence, missing []string) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	all = make([]Presence, len(users))
	for i, user := range users {
		k, ok := c.known[user]
		if !ok || !now.Before(k.until) {
			missing = append(missing, user)
			continue
		}
		all[i] = k.presence
		all[i].AsOf = all[i].AsOf.Add(now.Sub(k.asked))
	}
	return all, missing
}

func (c *Cache) keep(fresh []Presence, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range fresh {
		lasts := c.maxAge
		for _, end := range []time.Time{p.ValidUntil, p.AvailabilityUntil} {
			if !end.IsZero() {
				lasts = min(lasts, end.Sub(p.AsOf))
			}
		}
		if _, ok := c.known[p.User]; !ok && len(c.known) >= c.max {
			for user := range c.known {
				delete(c.known, user)
				break
			}
		}
		c.known[p.User] = cached{p, asked, asked.Add(lasts)}
	}
}
