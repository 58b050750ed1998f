package webhooks

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen"
)

// State is how a webhook fares, as the server that delivers for it noted.
type State struct {
	Webhook   string
	Disabled  bool             // the receiver answered 410
	Holder    bool             // some server delivers, or did a short time ago
	Delivered lastseen.Instant // when the receiver accepted an event last; 0 if it never did
	Lag       time.Duration    // of that event, from its oldest change
	Behind    time.Duration    // see [Stats]
	Failed    lastseen.Instant // when a request failed last; 0 if none did
	Error     string           // why it did
}

// noted is a webhook's own note, under the empty key. Times are the store's.
type noted struct {
	Entry     string           // of the server that noted it
	Gone      string           // the entry whose receiver answered 410
	At        lastseen.Instant // when it was noted
	Delivered lastseen.Instant `json:",omitempty"`
	Lag       time.Duration    `json:",omitempty"`
	Behind    time.Duration    `json:",omitempty"`
	Failed    lastseen.Instant `json:",omitempty"`
	Error     string           `json:",omitempty"`
}

const (
	ownNote   = ""               // its key
	noteEvery = 10 * time.Second // its own note is written

	compareEvery = time.Minute // a server that does not deliver reads it
)

// ErrUnknown means that this server has no webhook of that name.
var ErrUnknown = errors.New("there is no such webhook")

// States returns how all webhooks fare, in the order of their names, whichever servers deliver for them.
func (m *Manager) States(ctx context.Context) ([]State, error) {
	all := []State{}
	for _, w := range m.o.Webhooks() {
		n, _, err := readNote[noted](ctx, m.o.Store, w.Name, ownNote)
		if err != nil {
			return nil, err
		}
		now, err := m.o.Store.Now(ctx)
		if err != nil {
			return nil, err
		}
		s := State{
			Webhook: w.Name, Disabled: n.Gone != "" && n.Gone == w.Entry, Holder: now.Sub(n.At) < 3*noteEvery,
			Delivered: n.Delivered, Lag: n.Lag, Behind: n.Behind, Failed: n.Failed, Error: n.Error,
		}
		if n.Behind > 0 {
			s.Behind += max(now.Sub(n.At), 0)
		}
		all = append(all, s)
	}
	return all, nil
}

// find returns a webhook of the current configuration.
func (m *Manager) find(name string) (*Webhook, error) {
	for _, w := range m.o.Webhooks() {
		if w.Name == name {
			return w, nil
		}
	}
	return nil, ErrUnknown
}

// Enable has a webhook delivered again whose receiver answered 410. It returns ErrUnknown, or errors of the store.
func (m *Manager) Enable(ctx context.Context, name string) error {
	if _, err := m.find(name); err != nil {
		return err
	}
	for {
		n, kept, err := readNote[noted](ctx, m.o.Store, name, ownNote)
		if err != nil || n.Gone == "" {
			return err
		}
		n.Gone = ""
		version, err := writeNote(ctx, m.o.Store, name, ownNote, kept.Version, n)
		if err != nil || version != "" {
			return err
		}
	}
}

// Attempt is what came of one request, and why; "" if the event was delivered.
type Attempt struct {
	Result Result
	Reason string
}

// Try sends a test event from this server, once, also if the webhook is disabled. It returns ErrUnknown, or errors of
// the store.
func (m *Manager) Try(ctx context.Context, name string) (Attempt, error) {
	w, err := m.find(name)
	if err != nil {
		return Attempt{}, err
	}
	now, err := m.o.Store.Now(ctx)
	if err != nil {
		return Attempt{}, err
	}
	c := newClient(m.o.Transport(w))
	defer c.CloseIdleConnections()
	a := c.try(ctx, w, test(name, now))
	if err := ctx.Err(); err != nil {
		return Attempt{}, err
	}
	return Attempt{a.Result, a.why()}, nil
}

// recent is what happened since this server began to deliver, by its own clock.
type recent struct {
	delivered, failed time.Time
	lag               time.Duration
	reason            string
}

// tried notes what came of a request.
func (r *runner) tried(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); a.Result == Delivered {
		r.recent.delivered = now
	} else {
		r.recent.failed, r.recent.reason = now, a.why()
	}
}

// lagged notes how late an event was delivered.
func (r *runner) lagged(d time.Duration) {
	r.mu.Lock()
	r.recent.lag = d
	r.mu.Unlock()
	r.o.Observe.Lag(r.current.Load().Name, d)
}

// keepNote reads the webhook's own note when this server begins to deliver, and while the receiver is gone: any server
// can enable it. It writes the note when that is due. It returns false if what others noted is not known yet.
func (r *runner) keepNote(ctx context.Context) bool {
	r.mu.Lock()
	begins, disabled, due := r.version == "", r.disabled(), !time.Now().Before(r.nextNote)
	r.mu.Unlock()
	if begins || disabled {
		n, kept, err := readNote[noted](ctx, r.o.Store, r.name, ownNote)
		if err != nil {
			return !begins
		}
		if r.adopt(n, kept.Version); kept.Restored { // and so are the places, also of namespaces that are quiet
			r.stop(ctx, func(*stream) bool { return true })
		}
	}
	if begins || due {
		r.tell(ctx)
	}
	return true
}

// adopt takes over what is noted.
func (r *runner) adopt(n noted, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.version {
	case version: // nobody replaced it
	case "":
		r.noted, r.known = n, r.known || version != ""
	default:
		r.noted.Gone = n.Gone
	}
	r.version = version
}

// tell writes the webhook's own note.
func (r *runner) tell(ctx context.Context) {
	now, err := r.o.Store.Now(ctx)
	if err != nil {
		return
	}
	behind := r.stats().Behind
	r.mu.Lock()
	n, version, entry := &r.noted, r.version, r.current.Load()
	n.Entry, n.At, n.Behind = entry.Entry, now, behind
	if at := r.recent.delivered; !at.IsZero() {
		n.Delivered, n.Lag = now.Add(-time.Since(at)), r.recent.lag
	}
	if at := r.recent.failed; !at.IsZero() {
		n.Failed, n.Error = now.Add(-time.Since(at)), r.recent.reason
	}
	write := *n
	r.mu.Unlock()
	if version, err = writeNote(ctx, r.o.Store, r.name, ownNote, version, write); err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version, r.nextNote = version, time.Now().Add(noteEvery) // without a version, it is read again
}

// compare warns if the server that delivers has other settings than this one.
func (r *runner) compare(ctx context.Context) {
	r.mu.Lock()
	due := !time.Now().Before(r.nextNote)
	r.mu.Unlock()
	if !due {
		return
	}
	n, kept, err := readNote[noted](ctx, r.o.Store, r.name, ownNote)
	now, clockErr := r.o.Store.Now(ctx)
	known := err == nil && clockErr == nil && kept.Version != ""
	if known && now.Sub(n.At) < 2*noteEvery && n.Entry != r.current.Load().Entry {
		r.warn("another server delivers with other settings: give all servers the same, and reload all of them")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nextNote = time.Now().Add(compareEvery)
}
