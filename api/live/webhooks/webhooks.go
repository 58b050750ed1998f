// Package webhooks sends the changes of namespaces to URLs that the operator chose, as signed requests by the
// specification Standard Webhooks 1.0.0. It delivers what the changes feed has, so it misses nothing or says so.
//
// # What is delivered
//
// For each webhook and namespace there is one sequence of events. It begins with the users who are not grey, in the
// parts of a snapshot; changes follow. An event is sent again, with the same bytes and the same ID, until the receiver
// accepts or refuses it; the next one waits for that. How far the sequence is, and the events that come next, are kept
// in the store. If that place is lost, since the receiver was away for longer than the feed keeps changes, or the store
// lost data, the sequence begins again, with a reset before the snapshot. For a receiver that is too slow, that is at
// most once in [resetEvery].
//
// One server at a time, the one with the lease, delivers for a webhook. One that takes over goes on from the place. Two
// that deliver at once, since one was suspended, send the same events in the same order: a place is replaced only by
// one who knows it.
//
// # Bounds
//
// An event has up to [maxUsers] users and [maxBody] bytes. One request at a time is open for a webhook and namespace,
// and [maxRequests] for a webhook. What waits for a slow receiver is the feed's: see package store/feed.
package webhooks

import (
	"context"
	"crypto/x509"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// Report is what a webhook reports.
type Report string

// The reports.
const (
	Online Report = "online" // who becomes green or yellow, and who becomes grey
	Status Report = "status" // every change
)

// Webhook is what the configuration says about one.
type Webhook struct {
	Name       string // a valid name of a namespace, of at most MaxName bytes
	Entry      string // is another one if anything of the webhook is
	URL        *url.URL
	Secrets    []Secret                    // at least one; each signs
	Namespaces func(namespace string) bool // reports which to deliver
	Report     Report
	Hold       time.Duration  // only what still holds after that is reported; 0 to 5 minutes
	RootCAs    *x509.CertPool // that verify the receiver; nil for those of the system
}

// MaxName is the length of the longest [Webhook.Name], in bytes.
const MaxName = 64 - len(notePrefix)

// Options configure a manager. All fields but the last two are required.
type Options struct {
	Store    Store
	Watch    func(ctx context.Context, namespace string, q feed.Query) (Watcher, error)
	Webhooks func() []*Webhook // those of the current configuration; called often
	// Append appends the fields of a presence in JSON, without braces.
	Append        func(b []byte, u feed.Update) []byte
	MaxNamespaces func() int // that one webhook delivers
	Observe       Observer
	Logger        *slog.Logger
	Transport     func(*Webhook) http.RoundTripper // default: [NewTransport]
	Random        func() float64                   // in [0, 1), for jitter; default math/rand/v2
}

// Store is what webhooks use of a store.
type Store interface {
	store.Leaser
	store.Notes
	Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error)
	Now(ctx context.Context) (lastseen.Instant, error)
}

// Watcher follows everyone in a namespace: see [feed.Watcher].
type Watcher interface {
	Next(ctx context.Context, limit int) (b feed.Batch, ok bool, again time.Duration, err error)
	Close()
}

// Observer is notified of events, for metrics. Its methods must return quickly.
type Observer interface {
	// Tried is called after each request.
	Tried(webhook string, r Result)
	// Dropped is called for users of an event that was given up.
	Dropped(webhook string, users int)
	// Reset is called for each reset that was delivered.
	Reset(webhook string)
	// Lag is called with the time from recording the oldest change of an event to its delivery; of what is held, from
	// the end of that time.
	Lag(webhook string, d time.Duration)
}

// Stats describe a webhook on this server at this moment.
type Stats struct {
	Webhook    string
	Holding    bool // this server delivers for it
	Disabled   bool // the receiver said that it is gone
	Namespaces int  // that it delivers
	// Behind is for how long the receiver accepts nothing, or waits for a reset: in the namespace where that is
	// longest.
	Behind time.Duration
}

// Manager delivers for all webhooks of a server. Make one for each process.
type Manager struct {
	o       Options
	mu      sync.Mutex
	runners map[string]*runner
}

// New returns a manager that delivers nothing until Run is called.
func New(o Options) *Manager {
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Transport == nil {
		o.Transport = NewTransport
	}
	return &Manager{o: o, runners: map[string]*runner{}}
}

const (
	lookEvery  = 2 * time.Second // the configuration is read, and the lease renewed
	leaseTime  = 6 * time.Second
	holdTime   = 4 * time.Second // after asking for the lease, it is used
	renewRetry = 500 * time.Millisecond
	listEvery  = 5 * time.Second // namespaces are listed
	listShare  = 20              // the time from one list to the next is so many times that of a list, at least
	endAfter   = time.Minute     // a namespace that is not listed is not followed any longer
	listPage   = 1000            // namespaces in one call of the store

	// At least, from one reset of a namespace to the next: if the receiver is too slow, and if it is not.

	resetEvery     = 10 * time.Minute
	feedResetEvery = 10 * time.Second
	keptUp         = 30 * time.Second // the time without reading the feed to its end after which a receiver is too slow

	renewTimeout = time.Second // of asking for the lease

	maxRequests = 8 // that are open for a webhook
)

// Run delivers until the context ends. It is called once.
func (m *Manager) Run(ctx context.Context) {
	defer m.keep(nil)
	for ctx.Err() == nil {
		current := m.o.Webhooks()
		m.keep(current)
		m.begin(ctx, current)
		store.Pause(ctx, lookEvery)
	}
}

// begin has webhooks delivered, with their newest settings.
func (m *Manager) begin(ctx context.Context, current []*Webhook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range current {
		r := m.runners[w.Name]
		if r == nil {
			r = newRunner(ctx, m.o, w)
			m.runners[w.Name] = r
		}
		r.use(w)
	}
}

// keep ends what delivers for webhooks that are not current any longer.
func (m *Manager) keep(current []*Webhook) {
	var ended sync.WaitGroup
	defer ended.Wait() // without the lock: statistics do not wait
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.runners {
		if !slices.ContainsFunc(current, func(w *Webhook) bool { return w.Name == name }) {
			ended.Go(r.end)
			delete(m.runners, name)
		}
	}
}

// Stats returns the current statistics of each webhook, in the order of their names.
func (m *Manager) Stats() []Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Stats, 0, len(m.runners))
	for _, r := range m.runners {
		all = append(all, r.stats())
	}
	slices.SortFunc(all, func(a, b Stats) int { return strings.Compare(a.Webhook, b.Webhook) })
	return all
}
