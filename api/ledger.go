package api

import (
	"sync"
	"time"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// watchCounts counts the users that callers with tokens follow at the same time, over all their requests to this
// server. A caller without any has no entry. The zero value is ready to use, and its methods may be called
// concurrently.
type watchCounts struct {
	mu     sync.Mutex
	counts map[limit.Key]int
}

// add counts n more users, or fewer if it is negative. It returns an error if there are more than [store.MaxWatched];
// then nothing has changed. Only callers with tokens are counted.
func (w *watchCounts) add(caller *auth.Caller, n int) error {
	if caller == nil || caller.Kind != auth.ByToken || n == 0 {
		return nil
	}
	key := limit.ByUser(caller.Issuer, caller.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > 0 && w.counts[key]+n > store.MaxWatched {
		return problem.Errorf(problem.RateLimited, "Limit for one user: %d users followed at the same time, "+
			"over all requests. End other requests first.", store.MaxWatched).RetryAfter(watchRetryWait)
	}
	count(&w.counts, key, n)
	return nil
}

// watchRetryWait is in seconds: another request of the caller, such as the one that this one replaces, may be ending.
const watchRetryWait = 5

const (
	maxNamespaces = 100         // that a caller follows
	followedFor   = time.Minute // a namespace counts after that, about as long as its feed is still read
)

// ledger is what one request or connection counts to its caller: the users that it follows, and the namespace while
// there are any. One goroutine uses it at a time.
type ledger struct {
	shared    *Shared
	namespace string // "" counts none
	payer     func() (limit.Key, bool)

	users  int
	caller *auth.Caller // that they are counted to: after a reload, a connection can have another one
	end    func()       // gives the namespace back; nil if it is not counted
}

// set counts n users instead of those before. After an error nothing has changed; there is none if n is not larger.
func (l *ledger) set(n int, caller *auth.Caller) error {
	if l.users == 0 {
		l.caller = caller
	}
	if err := l.shared.watched.add(l.caller, n-l.users); err != nil {
		return err
	}
	if n > 0 && l.end == nil && l.namespace != "" {
		if err := l.follow(); err != nil {
			_ = l.shared.watched.add(l.caller, l.users-n)
			return err
		}
	}
	if n == 0 && l.end != nil {
		l.end()
		l.end = nil
	}
	l.users = n
	return nil
}

// clear gives everything back.
func (l *ledger) clear() { _ = l.set(0, nil) }

// follow counts the namespace.
func (l *ledger) follow() error {
	key, limited := l.payer()
	if !limited {
		l.end = func() {}
		return nil
	}
	end, ok := l.shared.followed.Begin(key, l.namespace)
	if !ok {
		return problem.Errorf(problem.RateLimited, "Limit for one %s: %d namespaces followed at the same time, over "+
			"all requests. A namespace counts for a minute after its last request ends.", key.Policy, maxNamespaces).
			RetryAfter(guard.WholeSeconds(followedFor))
	}
	l.end = end
	return nil
}
