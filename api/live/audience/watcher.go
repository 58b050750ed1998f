package audience

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// Query says what a [Watcher] follows.
type Query struct {
	feed.Query // its users; or everyone, which is the contacts of the viewer
	Namespace  string
	Viewer     Viewer
	Owner      string          // instead of users: whose contacts are followed
	Charge     func() error    // called for each page of contacts after the first that is read to begin
	Count      func(int) error // has so many contacts that are followed count to the caller
}

// Watcher follows the changes of users as a viewer sees them: users who do not have the viewer among their contacts
// look as if they had never been seen. Nothing that they do makes a difference to a batch, to when it comes, or to
// ticks. It also follows the contacts of a user: somebody who is no longer among them is sent once more, as never seen.
//
// It has a [feed.Watcher] of the users whom the viewer sees, and changes which these are. The feed says whose contacts
// to read again. While they cannot be read, nothing is sent. What the feed has is sent once no contacts are to be read
// that changed before it. The position of a batch is sealed: see [cursorState]. One goroutine uses a watcher at a time.
type Watcher struct {
	o     Options
	query Query
	inner *feed.Watcher
	members
	owner    string // whose contacts are followed; "" if users are named, or if the viewer sees nobody
	bound    string // what cursors are bound to
	secret   secret
	reserved int // users, at the hub

	begun     bool             // there was a batch
	since     []store.Position // before that: the position in the feed up to which the client was sent changes
	reset     bool             // before that: the client is sent all
	more      bool             // the feed has more
	positions []store.Position // in the feed, of what is pending
	asOf      lastseen.Instant

	due    map[string]struct{} // whose contacts are to be read: nothing is sent until then
	readAt time.Time           // when to read at the earliest, once there was a batch
	broken error               // why the watcher cannot go on, or nil
}

// Options are what watchers of a process have in common.
type Options struct {
	Store store.Store
	Feeds *feed.Hub
	*Shared
}

// Shared is what outlives [Options].
type Shared struct {
	secrets secrets
	reads   chan struct{} // a slot for each watcher that reads contacts from the store at the moment
}

// NewShared returns what watchers share.
func NewShared() *Shared { return &Shared{reads: make(chan struct{}, 16)} }

// Watch begins to follow changes. The caller closes the watcher.
func (o Options) Watch(ctx context.Context, q Query) (*Watcher, error) {
	w := &Watcher{
		o: o, query: q, owner: q.Owner, members: members{users: map[string]*member{}}, due: map[string]struct{}{},
	}
	if q.Everyone {
		w.owner = q.Viewer.User
	}
	if err := w.open(ctx, q.Users); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Watcher) open(ctx context.Context, users []string) (err error) {
	w.query.Users = nil // they are kept in the order
	w.inner, err = w.o.Feeds.Watch(ctx, w.query.Namespace, feed.Query{Reserved: true, Wake: w.query.Wake})
	if err != nil {
		return err
	}
	if w.owner != "" {
		w.inner.DependOn(w.owner) // before they are read, so that no change is missed
		users, err = w.listOwn(ctx, w.query.Charge)
	}
	if err == nil {
		err = w.count(len(users))
	}
	if err != nil {
		return err
	}
	w.begin(users, w.due)
	kind := "users"
	if w.query.Everyone {
		kind = "everyone"
	}
	viewer := strconv.FormatBool(w.query.Viewer.Restricted) + " " + w.query.Viewer.User
	w.bound = strings.Join([]string{"1", w.query.Namespace, kind, w.query.Owner, viewer}, "\x00") // no name has a NUL
	w.since, err = w.continueAfter(ctx, w.query.After, &w.members)
	w.reset = w.since == nil
	return err
}

// continueAfter has a list of users continue after positions: it notes who of them was shown, and returns where they
// continue in the feed; nil if that is not known.
func (w *Watcher) continueAfter(ctx context.Context, after []store.Position, list *members) ([]store.Position, error) {
	var sealed []byte
	if len(after) == 1 {
		sealed, _ = base64.RawURLEncoding.DecodeString(string(after[0])) // what is damaged does not open
	}
	known, err := w.o.secrets.newest(ctx, w.o.Store, sealed)
	if err != nil {
		return nil, err
	}
	if w.secret = known; sealed == nil {
		return nil, nil
	}
	users, hash := list.sorted()
	p, ok := known.open(sealed, w.bound, len(users))
	if !ok || p.list != hash {
		return nil, nil
	}
	now, err := w.o.Store.Now(ctx)
	if err != nil || now.Sub(p.asOf) > maxCursorAge {
		return nil, err
	}
	earlier := &store.Published{} // it differs from all that is published now
	for k, u := range users {
		w.users[u.name].sent = nil
		if p.shown[k/8]&(1<<(k%8)) != 0 {
			w.users[u.name].sent = earlier
		}
	}
	return p.positions, nil
}

// begin begins to watch users, and adds them to those whose contacts are due.
func (w *Watcher) begin(users []string, due map[string]struct{}) {
	w.dependOn(users)
	w.add(users)
	for _, name := range users {
		due[name] = struct{}{}
	}
}

// dependOn has the watcher learn when the contacts of users change, if these decide whom the viewer sees.
func (w *Watcher) dependOn(users []string) {
	if w.query.Viewer.Restricted {
		w.inner.DependOn(users...)
	}
}

// Close ends the watcher.
func (w *Watcher) Close() {
	if w.inner != nil {
		w.inner.Close()
	}
	_ = w.count(0)
}

// Len returns the number of users who are watched; 1 for everyone.
func (w *Watcher) Len() int {
	if w.query.Everyone {
		return 1
	}
	return len(w.order)
}

// maxPolls is how often contacts are read again that changed meanwhile, before a call fails.
const maxPolls = 3

// Poll returns what there is without waiting. It returns an error if contacts cannot be read.
func (w *Watcher) Poll(ctx context.Context, limit int) (feed.Batch, error) {
	err := w.broken
	if err == nil {
		err = w.settle(ctx, limit)
	}
	if err != nil {
		return feed.Batch{}, err
	}
	b, _ := w.batch()
	return b, nil
}

// settle reads contacts and takes what the feed has, until it has no changes of contacts before that.
func (w *Watcher) settle(ctx context.Context, limit int) error {
	for range maxPolls {
		if err := w.readContacts(ctx); err != nil {
			return err
		}
		b, err := w.inner.Poll(ctx, limit)
		if err != nil {
			return err
		}
		if w.take(b); len(w.due) == 0 {
			return nil
		}
	}
	return errContactsChange
}

var errContactsChange = fmt.Errorf("%w: contacts change all the time", store.ErrUnavailable)

// Next returns the next batch, as [feed.Watcher.Next] does. The feed spaces batches.
func (w *Watcher) Next(ctx context.Context, limit int) (b feed.Batch, ok bool, again time.Duration, err error) {
	for {
		if err := cmp.Or(ctx.Err(), w.broken); err != nil {
			return b, false, 0, err
		}
		if err := w.readInTurn(ctx, limit); err != nil {
			return b, false, 0, err
		}
		if len(w.due) == 0 {
			if b, ok := w.batch(); ok {
				return b, true, 0, nil
			}
		}
		next, ok, again, err := w.inner.Next(ctx, limit)
		if !ok || err != nil {
			if len(w.due) > 0 {
				again = min(again, max(0, time.Until(w.readAt)))
			}
			return b, false, again, err
		}
		w.take(next)
	}
}

// readInTurn reads the contacts that are due, unless it is too soon. Once there was a batch, an error of the store is
// not one of the watcher.
func (w *Watcher) readInTurn(ctx context.Context, limit int) error {
	if !w.begun {
		return w.settle(ctx, limit)
	}
	if len(w.due) == 0 || time.Now().Before(w.readAt) {
		return nil
	}
	w.readAt = time.Now().Add(contactsEvery)
	err := w.readContacts(ctx)
	final := slices.ContainsFunc([]error{store.ErrNoFeed, store.ErrClosed, store.ErrNoContacts}, func(e error) bool {
		return errors.Is(err, e)
	})
	switch {
	case err == nil || final || w.broken != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		w.readAt = time.Now().Add(contactsRetry)
		return nil
	}
}

// take takes a batch of the feed, and notes whose contacts changed.
func (w *Watcher) take(b feed.Batch) {
	w.asOf, w.more = cmp.Or(b.AsOf, w.asOf), b.More
	if b.Positions != nil {
		w.positions = b.Positions
	}
	w.gather(b)
	w.notice()
}

// notice notes whose contacts changed, according to the feed.
func (w *Watcher) notice() { maps.Copy(w.due, w.inner.ContactsChanged()) }

// batch returns what to send now, and whether that is anything.
func (w *Watcher) batch() (b feed.Batch, ok bool) {
	b.Snapshot = !w.begun && w.query.After == nil
	b.Reset = w.reset && !b.Snapshot
	if b.Snapshot || b.Reset {
		b.Users = slices.DeleteFunc(w.all(), w.omits)
	} else {
		b.Users = w.flush()
	}
	w.begun, w.reset, w.since = true, false, nil
	b.More, b.AsOf, b.Positions = w.more, w.asOf, []store.Position{w.seal()}
	return b, b.Snapshot || b.Reset || len(b.Users) > 0
}

// omits reports whether a client that follows everyone does not want a user in a snapshot.
func (w *Watcher) omits(u feed.Update) bool {
	return w.query.Everyone && (!u.Known() || w.query.NoSnapshot && w.query.After == nil ||
		len(w.query.Statuses) > 0 && !slices.Contains(w.query.Statuses, u.Status))
}

// seal returns the position after what was sent.
func (w *Watcher) seal() store.Position {
	list, hash := w.sorted()
	p := cursorState{asOf: w.asOf, list: hash, shown: make([]byte, shownWidth(len(list))), positions: w.positions}
	for k, u := range list {
		if u.sent != nil {
			p.shown[k/8] |= 1 << (k % 8)
		}
	}
	return w.secret.seal(p, w.bound)
}

// Tick returns how far the client was sent everything. It is false if that is not known.
func (w *Watcher) Tick() (feed.Batch, bool) {
	w.notice()
	b, complete := w.inner.Tick()
	if !complete || !w.begun || len(w.due) > 0 || len(w.pending) > 0 {
		return feed.Batch{}, false
	}
	w.take(b)
	return feed.Batch{AsOf: w.asOf, Positions: []store.Position{w.seal()}}, true
}
