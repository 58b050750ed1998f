package api

import (
	"context"
	"sync"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/store/feed"
)

// changesWatcher follows the changes of some users, or of everyone, as far as a caller sees them: see [feed.Watcher]
// for its methods. One goroutine uses it at a time.
type changesWatcher interface {
	Poll(ctx context.Context, limit int) (feed.Batch, error)
	Next(ctx context.Context, limit int) (feed.Batch, error)
	Change(ctx context.Context, change feed.Change) (feed.Batch, error)
	Tick() (feed.Batch, bool)
	Len() int
	Close()
}

// openWatcher begins to follow changes as a caller sees them: of the users of a query, or of the contacts of an owner.
// It charges another request for each further page of contacts that it reads for that. The caller of this method closes
// the watcher.
func (s *server) openWatcher(
	ctx context.Context, namespace, owner string, caller *auth.Caller, q feed.Query, charge func() error,
) (changesWatcher, error) {
	v := s.viewerOf(caller, namespace)
	if v.Restricted || owner != "" {
		counted := &ledger{shared: s.Shared}
		return opened(audience.Options{Store: s.Store, Feeds: s.Feeds, Shared: s.audience}.Watch(ctx, audience.Query{
			Query: q, Namespace: namespace, Viewer: v, Owner: owner, Charge: charge,
			Count: func(contacts int) error { return counted.set(contacts, caller) },
		}))
	}
	return opened(s.Feeds.Watch(ctx, namespace, q))
}

// opened returns a watcher, or no watcher at all with an error.
func opened[W changesWatcher](w W, err error) (changesWatcher, error) {
	if err != nil {
		return nil, err
	}
	return w, nil
}

// interruption lets other goroutines end the waiting of one. The zero value is ready to use.
type interruption struct {
	mu     sync.Mutex
	cancel func() // nil while nobody waits
}

// turn returns a context for the next waiting, which ends with its parent, and when another goroutine calls wakeUp.
// Look for what there is to do after turn, not before: what was noted before a wakeUp is then not missed.
func (i *interruption) turn(ctx context.Context) (turn context.Context, done func()) {
	turn, cancel := context.WithCancel(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancel = cancel
	return turn, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.cancel = nil
		cancel()
	}
}

// wakeUp ends the waiting. What there is to do must have been noted before.
func (i *interruption) wakeUp() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cancel != nil {
		i.cancel()
	}
}
