package api

import (
	"context"
	"sync"
	"time"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// rounds wakes the requests that stay open. A round lasts until the configuration is reloaded or the server begins to
// stop. The zero value is ready to use, and its methods may be called concurrently.
type rounds struct {
	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // it is the round, for others to wait for; nil before the first use
	endThis func()
}

// current returns a context that ends with the current round.
func (r *rounds) current() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		r.begin()
	}
	return r.ctx
}

// next begins the next round.
func (r *rounds) next() {
	r.mu.Lock()
	end := r.endThis
	r.begin()
	r.mu.Unlock()
	if end != nil {
		end()
	}
}

// begin begins a round. The caller holds the mutex.
func (r *rounds) begin() { r.ctx, r.endThis = context.WithCancel(context.Background()) }

// watchCounts counts the users that callers with tokens follow at the same time, over all their requests to this
// server. A caller without any has no entry. The zero value is ready to use, and its methods may be called
// concurrently.
type watchCounts struct {
	mu     sync.Mutex
	counts map[limit.Key]int
}

// take counts n more users, and returns a function that gives them back. It returns an error if there are more than
// [store.MaxWatched]. Only callers with tokens are counted.
func (w *watchCounts) take(caller *auth.Caller, n int) (giveBack func(), err error) {
	if caller == nil || caller.Kind != auth.ByToken {
		return func() {}, nil
	}
	key := limit.ByUser(caller.Issuer, caller.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts[key]+n > store.MaxWatched {
		return nil, problem.Errorf(problem.RateLimited, "Limit for one user: %d users followed at the same time, "+
			"over all requests. End other requests first.", store.MaxWatched).RetryAfter(watchRetryWait)
	}
	if w.counts == nil {
		w.counts = map[limit.Key]int{}
	}
	w.counts[key] += n
	return func() { w.drop(key, n) }, nil
}

// watchRetryWait is in seconds: another request of the caller, such as the one that this one replaces, may be ending.
const watchRetryWait = 5

// giveBack counts n users of a caller less.
func (w *watchCounts) giveBack(caller *auth.Caller, n int) {
	if caller != nil && caller.Kind == auth.ByToken && n > 0 {
		w.drop(limit.ByUser(caller.Issuer, caller.Name), n)
	}
}

func (w *watchCounts) drop(key limit.Key, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts[key] -= n; w.counts[key] == 0 {
		delete(w.counts, key)
	}
}

const (
	maxNamespaces = 100         // that a caller follows
	followedFor   = time.Minute // a namespace counts after that, about as long as its feed is still read
)

// followNamespace counts a namespace that a caller follows, and returns a function that ends this. It returns an error
// if there are more than [maxNamespaces].
func (s *server) followNamespace(key limit.Key, limited bool, namespace string) (end func(), err error) {
	if !limited {
		return func() {}, nil
	}
	if end, ok := s.followed.Begin(key, namespace); ok {
		return end, nil
	}
	return nil, problem.Errorf(problem.RateLimited, "Limit for one %s: %d namespaces followed at the same time, over "+
		"all requests. A namespace counts for a minute after its last request ends.", key.Policy, maxNamespaces).
		RetryAfter(wholeSeconds(followedFor))
}
