// Package subscription follows changes for one client, whatever it is connected by: it charges what the client asks
// for, counts what the client follows, and finds out what to send next, and when. Its callers authenticate clients, and
// encode and send what it returns.
package subscription

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// Server is what subscriptions use of a server: all of its fields are required. A reload replaces it.
type Server struct {
	audience.Options
	Viewer func(caller *auth.Caller, namespace string) audience.Viewer
	// Restricted reports whether the users of a namespace are visible to their contacts alone.
	Restricted func(namespace string) bool
	Limiter    *guard.Limiter
	Load       *guard.Load
	Random     func() float64 // in [0, 1), for jitter
	Now        func() time.Time
	Lag        func(time.Duration) // is called with the time from recording a change to handing it to the network
}

// ErrVisibility is the cause of what ends because the visibility of a namespace has changed.
var ErrVisibility = errors.New("the visibility of the namespace has changed")

// CheckVisibility returns an error unless users of a namespace are visible as they were before.
func (s *Server) CheckVisibility(namespace string, restricted bool) error {
	if s.Restricted(namespace) == restricted {
		return nil
	}
	return problem.New(problem.ShuttingDown, "The configuration of the namespace has changed. Begin again.").
		Because(ErrVisibility)
}

// Jitter returns a random duration.
func (s *Server) Jitter(low, high time.Duration) time.Duration {
	return low + time.Duration(s.Random()*float64(high-low))
}

// CheckLoad returns an error if the load leaves no room for new subscriptions.
func (s *Server) CheckLoad() error {
	return s.Load.Check(guard.Lookup, "The server is overloaded and refuses new watches to leave room for pings. "+
		"Try again later.")
}

// Options say who a subscription is for.
type Options struct {
	Ledger // of a namespace
	Server func() *Server
	Caller func() *auth.Caller // as of now
	Wake   func()              // see [feed.Query]
}

// Subscription follows the changes of users, of contacts, or of everyone, as a caller sees them. One goroutine uses it
// at a time. Callers close it.
type Subscription struct {
	o Options
	following
	opened lastseen.Instant // by the store's clock; changes recorded later are delivered live
	tickAt time.Time        // when the next tick is due
}

// following is what a subscription follows.
type following struct {
	watcher   watcher // nil for nothing
	everyone  bool
	uncharged int // users who count as requests only after a reset
}

// watcher follows changes as a caller sees them: see [feed.Watcher] for its methods.
type watcher interface {
	Poll(ctx context.Context, limit int) (feed.Batch, error)
	Next(ctx context.Context, limit int) (b feed.Batch, ok bool, again time.Duration, err error)
	Change(ctx context.Context, change feed.Change) (feed.Batch, error)
	Tick() (feed.Batch, bool)
	Len() int
	Close()
}

// New returns a subscription that follows nothing yet.
func New(o Options) *Subscription { return &Subscription{o: o, opened: math.MaxInt64} }

// Query says what to follow.
type Query struct {
	feed.Query        // of nobody if contacts are followed
	Owner      string // the user whose contacts are followed; "" if others are
}

// Open begins to follow. After an error nothing is followed.
//
// Users whose presence the client will be sent count as requests against the caller's rate limit. A client with a
// cursor continues, and they have been counted before: see [Subscription.Charge].
func (s *Subscription) Open(ctx context.Context, q Query) (err error) {
	defer s.settle()
	s.following, err = s.open(ctx, q)
	return err
}

// open returns what follows a query. The caller settles.
func (s *Subscription) open(ctx context.Context, q Query) (f following, err error) {
	server, users := s.o.Server(), len(q.Users)
	q.Wake = s.o.Wake
	if q.After == nil {
		if err := s.charge(users); err != nil {
			return f, err
		}
	}
	if err := s.count(max(1, users)); err != nil {
		return f, err
	}
	if s.opened == math.MaxInt64 {
		if now, err := server.Store.Now(ctx); err == nil {
			s.opened = now
		}
	}
	server.Load.Begin()
	defer server.Load.End()
	w, err := s.watch(ctx, server, q)
	if err != nil {
		return f, err
	}
	if q.Owner != "" { // contacts count as users who were named, now that it is known how many there are
		users = w.Len()
		if q.After == nil {
			err = s.charge(users)
		}
	}
	if err != nil {
		w.Close()
		return f, err
	}
	f = following{watcher: w, everyone: q.Everyone}
	if q.After != nil {
		f.uncharged = users
	}
	return f, nil
}

// watch opens a watcher. It charges another request for each further page of contacts that it reads for that.
func (s *Subscription) watch(ctx context.Context, server *Server, q Query) (watcher, error) {
	caller := s.o.Caller()
	v := server.Viewer(caller, s.o.Namespace)
	if !v.Restricted && q.Owner == "" {
		return server.Feeds.Watch(ctx, s.o.Namespace, q.Query)
	}
	contacts := &Ledger{Shared: s.o.Shared}
	return server.Watch(ctx, audience.Query{
		Query: q.Query, Namespace: s.o.Namespace, Viewer: v, Owner: q.Owner,
		Charge: func() error { return s.charge(1) },
		Count:  func(n int) error { return contacts.Set(n, caller) },
	})
}

// Replace follows something else from now on, and returns the first batch. After an error nothing has changed.
func (s *Subscription) Replace(ctx context.Context, q Query, limit int) (batch feed.Batch, err error) {
	server := s.o.Server()
	if err := server.CheckLoad(); err != nil {
		return batch, err
	}
	defer s.settle() // gives back what was counted for nothing, or for those before
	f, err := s.open(ctx, q)
	if err != nil {
		return batch, err
	}
	server.Load.Begin()
	defer server.Load.End()
	batch, err = f.watcher.Poll(ctx, limit)
	if err == nil {
		err = s.charge(f.due(batch))
	}
	if err != nil {
		f.watcher.Close()
		return batch, err
	}
	s.stop()
	s.following = f
	return batch, nil
}

// Change adds and removes users, and returns the presence of those added.
func (s *Subscription) Change(ctx context.Context, change feed.Change) (batch feed.Batch, err error) {
	defer s.settle()
	server := s.o.Server()
	if users := len(change.Add); users > 0 {
		if err := server.CheckLoad(); err != nil {
			return batch, err
		}
		if err := s.charge(users); err != nil {
			return batch, err
		}
		if err := s.count(users); err != nil {
			return batch, err
		}
	}
	server.Load.Begin()
	defer server.Load.End()
	batch, err = s.watcher.Change(ctx, change)
	if errors.Is(err, feed.ErrTooManyUsers) {
		return batch, problem.Errorf(problem.TooManyItems,
			"A connection watches at most %d users. Remove others first.", store.MaxWatched)
	}
	return batch, err
}

// IsActive reports whether something is followed.
func (s *Subscription) IsActive() bool { return s.watcher != nil }

// IsOfEveryone reports whether everyone is followed.
func (s *Subscription) IsOfEveryone() bool { return s.everyone }

// Close follows nothing any longer.
func (s *Subscription) Close() {
	s.stop()
	s.settle()
}

func (s *Subscription) stop() {
	if s.watcher != nil {
		s.watcher.Close()
	}
	s.following = following{}
}

// Charge charges the users of the first batch if it is a reset: that of a client with a cursor that proves nothing, and
// anyone can make one, must not be cheaper than a lookup.
func (s *Subscription) Charge(batch feed.Batch) error { return s.charge(s.due(batch)) }

// due returns how many users a batch is charged for, once.
func (f *following) due(batch feed.Batch) (users int) {
	if batch.Reset {
		users, f.uncharged = f.uncharged, 0
	}
	return users
}

// ChargePage charges a response with a page of everyone, which costs as much as pages of a list. One of them is paid
// for by the request. See [Subscription.Next] for streams.
func (s *Subscription) ChargePage(batch feed.Batch) error {
	if !batch.Page {
		return nil
	}
	return s.charge(pageCost(batch) - 1)
}

// charge charges requests to the caller's rate limit.
func (s *Subscription) charge(requests int) error {
	if requests == 0 {
		return nil
	}
	key, limited := s.o.Payer()
	return s.o.Server().Limiter.ChargeKey(key, limited, requests)
}

// pageCost returns how many requests a page of everyone counts as: those of pages of a list.
func pageCost(page feed.Batch) int {
	return max(1, (len(page.Users)+request.MaxLimit-1)/request.MaxLimit)
}

// count counts n more users to the caller.
func (s *Subscription) count(n int) error { return s.o.Set(s.o.users+n, s.o.Caller()) }

// settle counts as many users to the caller as are followed. It gives back, and so it does not fail.
func (s *Subscription) settle() {
	users := 0
	if s.watcher != nil {
		users = max(1, s.watcher.Len())
	}
	_ = s.o.Set(min(users, s.o.users), s.o.Caller())
}

// errStale means that the feed was not read, or its watermark did not advance, for some seconds.
var errStale = fmt.Errorf("%w: the changes feed is not complete", store.ErrUnavailable)
