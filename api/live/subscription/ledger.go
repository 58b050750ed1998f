package subscription

import (
	"time"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// RetryWait is after how many seconds a caller that follows too much should try again: another request of the caller,
// such as the one that this one replaces, may be ending.
const RetryWait = 5

const (
	maxNamespaces = 100         // that a caller follows
	followedFor   = time.Minute // a namespace counts after that, about as long as its feed is still read
)

// Shared has what callers follow, over all their requests and connections to this server.
type Shared struct {
	Users      limit.Tally // of callers with tokens
	namespaces *limit.Distinct
}

// NewShared returns what subscriptions share. The clock must not go backwards.
func NewShared(now func() time.Time) *Shared {
	return &Shared{namespaces: limit.NewDistinct(maxNamespaces, followedFor, limit.DefaultSize, now)}
}

// Ledger is what one request or connection counts to its caller: the users that it follows, and the namespace while
// there are any. One goroutine uses it at a time.
type Ledger struct {
	*Shared
	Namespace string                   // "" counts none
	Payer     func() (limit.Key, bool) // what the namespace is counted to, unless that is not limited

	users  int
	caller *auth.Caller // that they are counted to: after a reload, a connection can have another one
	end    func()       // gives the namespace back; nil if it is not counted
}

// Set counts n users instead of those before. After an error nothing has changed; there is none if n is not larger.
func (l *Ledger) Set(n int, caller *auth.Caller) error {
	if l.users == 0 {
		l.caller = caller
	}
	if err := l.add(n - l.users); err != nil {
		return err
	}
	if n > 0 && l.end == nil && l.Namespace != "" {
		if err := l.follow(); err != nil {
			_ = l.add(l.users - n) // gives back
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

// Clear gives everything back.
func (l *Ledger) Clear() { _ = l.Set(0, nil) }

// add counts n more users, or fewer if it is negative. Only those of callers with tokens are counted.
func (l *Ledger) add(n int) error {
	if l.caller == nil || l.caller.Kind != auth.ByToken || n == 0 {
		return nil
	}
	if l.Users.Add(limit.ByUser(l.caller.Issuer, l.caller.Name), n, store.MaxWatched) {
		return nil
	}
	return problem.Errorf(problem.RateLimited, "Limit for one user: %d users followed at the same time, "+
		"over all requests. End other requests first.", store.MaxWatched).RetryAfter(RetryWait)
}

// follow counts the namespace.
func (l *Ledger) follow() error {
	key, limited := l.Payer()
	if !limited {
		l.end = func() {}
		return nil
	}
	end, ok := l.namespaces.Begin(key, l.Namespace)
	if !ok {
		return problem.Errorf(problem.RateLimited, "Limit for one %s: %d namespaces followed at the same time, over "+
			"all requests. A namespace counts for a minute after its last request ends.", key.Policy, maxNamespaces).
			RetryAfter(guard.WholeSeconds(followedFor))
	}
	l.end = end
	return nil
}
