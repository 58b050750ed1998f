package api

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// visibleBatchEvery is the least time between two batches of a watcher that waits, unless the first one had More: as of
// a [feed.Watcher].
const visibleBatchEvery = 250 * time.Millisecond

// visibleWatcher is a [changesWatcher] for a user in a namespace where users are visible to contacts: users who do not
// have the viewer among their contacts look as if they had never been seen. Nothing that they do makes a difference to
// a batch, to when it comes, to its places, or to ticks. In all namespaces it watches the contacts of a user: somebody
// who is no longer among them is told once more, as never seen.
//
// It compares what the client was told with what the client may know now, and tells the differences. So what the feed
// says and who is visible can change independently, and a reset of the feed is not one for the client. The places of a
// batch are not those of the feed, in which changes of others show, but a hash of what was told: see [visibleUsers].
//
// While contacts cannot be read, nothing is told. The feed says whose contacts to read again. If everyone is watched,
// these are the contacts of the viewer.
type visibleWatcher struct {
	*server
	visibleUsers
	namespace string
	viewer    viewer
	owner     string // whose contacts are watched; "" if users are named, or if the viewer sees nobody
	caller    *auth.Caller
	inner     *feed.Watcher // of the users whom the viewer sees
	contacts  ledger        // that count to the caller, besides the watcher itself
	query     feed.Query    // after whose places it continues
	begun     bool          // there was a batch, or the client knows what there is after the places of the query
	asOf      lastseen.Instant
	notBefore time.Time // when the next batch may come
	reserved  int       // users, at the hub

	due       map[string]struct{} // whose contacts are to be read; what they say is not known, so nothing is told
	readAfter time.Time           // when to read at the earliest, once there was a batch
	broken    error               // why the watcher cannot go on, or nil
}

// openVisible begins to follow changes as a viewer sees them: those of the users of a query; of the contacts of an
// owner if there is one, and a query for everyone has that of the viewer. It charges each further page of contacts that
// it reads.
func (s *server) openVisible(
	ctx context.Context, namespace string, caller *auth.Caller, v viewer, owner string, q feed.Query,
	charge func() error,
) (changesWatcher, error) {
	w := &visibleWatcher{
		server: s, namespace: namespace, viewer: v, owner: owner, caller: caller, query: q,
		contacts:     ledger{shared: s.Shared},
		visibleUsers: visibleUsers{users: map[string]*visibleUser{}}, due: map[string]struct{}{},
	}
	if err := w.open(ctx, q, charge); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *visibleWatcher) open(ctx context.Context, q feed.Query, charge func() error) (err error) {
	users := q.Users
	w.query.Users = nil                                                   // they are kept in the order
	w.inner, err = w.Feeds.Watch(ctx, w.namespace, feed.Query{Raw: true}) // of nobody, until contacts are read
	if err != nil {
		return err
	}
	if w.owner != "" {
		w.inner.DependOn(w.owner) // before they are read, so that no change is missed
		users, err = w.listOwn(ctx, charge)
	}
	if err = cmp.Or(err, w.count(len(users))); err != nil {
		return err
	}
	w.begin(users, w.due)
	return nil
}

// begin begins to watch users, and adds them to those whose contacts are due.
func (w *visibleWatcher) begin(users []string, due map[string]struct{}) {
	w.dependOn(users)
	w.add(users)
	for _, name := range users {
		due[name] = struct{}{}
	}
}

// dependOn has the watcher learn when the contacts of users change, if these decide whom the viewer sees.
func (w *visibleWatcher) dependOn(users []string) {
	if w.viewer.restricted {
		w.inner.DependOn(users...)
	}
}

// Close ends the watcher.
func (w *visibleWatcher) Close() {
	if w.inner != nil {
		w.inner.Close()
	}
	_ = w.count(0)
}

// Len returns the number of users who are watched; 1 for everyone.
func (w *visibleWatcher) Len() int {
	if w.query.Everyone {
		return 1
	}
	return len(w.order)
}

// Poll returns what there is without waiting. It returns an error if contacts cannot be read.
func (w *visibleWatcher) Poll(ctx context.Context, limit int) (feed.Batch, error) {
	if w.broken != nil {
		return feed.Batch{}, w.broken
	}
	for range maxPolls {
		if err := w.readContacts(ctx); err != nil {
			return feed.Batch{}, err
		}
		if err := w.pollFeed(ctx); err != nil {
			return feed.Batch{}, err
		}
		if len(w.due) == 0 { // of contacts that were removed before what the feed has now
			b, _ := w.batch(limit)
			return b, nil
		}
	}
	return feed.Batch{}, errContactsChange
}

// pollFeed takes what the feed has.
func (w *visibleWatcher) pollFeed(ctx context.Context) error {
	for {
		b, err := w.inner.Poll(ctx, math.MaxInt)
		if err != nil {
			return err
		}
		if w.take(b); !b.Snapshot && !b.Reset && !b.More && len(b.Users) == 0 {
			return nil
		}
	}
}

// Next returns the next batch, and waits until there is one or the context ends.
func (w *visibleWatcher) Next(ctx context.Context, limit int) (feed.Batch, error) {
	for {
		if err := cmp.Or(ctx.Err(), w.broken); err != nil {
			return feed.Batch{}, err
		}
		b, ok, err := w.step(ctx, limit)
		if ok || err != nil {
			return b, err
		}
	}
}

// step returns what there is, or waits for anything that can make a difference.
func (w *visibleWatcher) step(ctx context.Context, limit int) (b feed.Batch, ok bool, err error) {
	if err := w.catchUp(ctx); err != nil {
		return feed.Batch{}, false, err
	}
	if len(w.due) == 0 && (!w.begun || !time.Now().Before(w.notBefore)) {
		if b, ok := w.batch(limit); ok {
			return b, true, nil
		}
	}
	wait, cancel := context.WithDeadline(ctx, w.waitUntil())
	defer cancel()
	inner, err := w.inner.Next(wait, math.MaxInt)
	switch {
	case err == nil:
		w.take(inner)
	case ctx.Err() != nil:
		return feed.Batch{}, false, ctx.Err()
	case wait.Err() == nil:
		return feed.Batch{}, false, err
	}
	return feed.Batch{}, false, nil
}

// waitUntil returns when there is something to do at the latest. It is not past, or step does it at once.
func (w *visibleWatcher) waitUntil() time.Time {
	switch {
	case len(w.due) > 0:
		return w.readAfter
	case w.unsettled():
		return w.notBefore
	default:
		return time.Now().Add(time.Hour)
	}
}

// catchUp reads the contacts that are due, unless it is too soon, and takes what the feed has.
func (w *visibleWatcher) catchUp(ctx context.Context) error {
	w.notice()
	if !w.begun || !time.Now().Before(w.readAfter) {
		if err := w.readInTurn(ctx); err != nil {
			return err
		}
	}
	for {
		b, ok, _, err := w.inner.Take(ctx, math.MaxInt)
		if err != nil {
			return err
		}
		if w.take(b); !ok {
			return nil
		}
	}
}

// readInTurn reads the contacts that are due, and notes when to do that again at the earliest. Once there was a batch,
// an error of the store is not one of the watcher.
func (w *visibleWatcher) readInTurn(ctx context.Context) error {
	changed := w.begun && len(w.due) > 0
	err := w.readContacts(ctx)
	switch {
	case err == nil:
		if changed {
			w.readAfter = time.Now().Add(contactsEvery)
		}
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !w.begun || isFinal(err):
		return err
	default:
		w.readAfter = time.Now().Add(contactsRetry)
		return nil
	}
}

// isFinal reports whether an error is not one of those after which a watcher tries again.
func isFinal(err error) bool {
	if _, ok := errors.AsType[*problem.Error](err); ok {
		return true
	}
	return slices.ContainsFunc([]error{
		store.ErrNoFeed, store.ErrClosed, store.ErrNoContacts, feed.ErrTooManyWatches,
	}, func(final error) bool { return errors.Is(err, final) })
}

// take takes a batch of the feed.
func (w *visibleWatcher) take(b feed.Batch) {
	if b.AsOf != 0 {
		w.asOf = b.AsOf
	}
	w.publish(b)
	w.notice()
}

// notice notes whose contacts changed, according to the feed.
func (w *visibleWatcher) notice() {
	maps.Copy(w.due, w.inner.ContactsChanged())
}

// batch returns what to tell the client now, and whether that is anything.
func (w *visibleWatcher) batch(limit int) (b feed.Batch, ok bool) {
	if !w.begun {
		b, ok = w.first()
	} else {
		if w.owner != "" { // a hash does not show who of those added was not told
			limit = math.MaxInt
		}
		b.Users, b.More = w.tell(max(limit, 1))
		b.Places = []store.Place{w.place()}
		ok = len(b.Users) > 0
	}
	b.AsOf = w.asOf
	if ok && !b.More && !b.Snapshot && !b.Reset {
		w.notBefore = time.Now().Add(visibleBatchEvery)
	}
	return b, ok
}

// first returns the first batch.
func (w *visibleWatcher) first() (b feed.Batch, ok bool) {
	w.begun = true
	all := w.tellAll()
	b.Places = []store.Place{w.place()}
	b.Snapshot = w.query.After == nil
	if b.Reset = !b.Snapshot && !slices.Equal(w.query.After, b.Places); b.Snapshot || b.Reset {
		b.Users = slices.DeleteFunc(all, w.omits)
	}
	return b, b.Snapshot || b.Reset
}

// omits reports whether a client that follows everyone does not want a user in a snapshot.
func (w *visibleWatcher) omits(u feed.Update) bool {
	return w.query.Everyone && (!u.Known() || w.query.NoSnapshot && w.query.After == nil ||
		len(w.query.Statuses) > 0 && !slices.Contains(w.query.Statuses, u.Status))
}

// Tick returns how far the client was told everything. What the feed says of users whom the viewer does not see is no
// reason to return false, so it is taken first, as far as it is in memory.
func (w *visibleWatcher) Tick() (feed.Batch, bool) {
	ended, end := context.WithCancel(context.Background())
	end()
	for range maxPolls {
		inner, complete := w.inner.Tick()
		if complete {
			w.take(inner)
			if !w.begun || len(w.due) > 0 || w.unsettled() {
				return feed.Batch{}, false
			}
			return feed.Batch{AsOf: w.asOf, Places: []store.Place{w.place()}}, true
		}
		b, err := w.inner.Poll(ended, math.MaxInt)
		if err != nil || b.Places == nil {
			return feed.Batch{}, false
		}
		w.take(b)
	}
	return feed.Batch{}, false
}
