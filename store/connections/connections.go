// Package connections turns the connections that users hold open on this server into pings and goodbyes in the store.
// It knows nothing of the protocol: a transport reports what it hears, and is told when to close.
//
// Evidence, not hope: whatever is heard on a connection is recorded as a ping at the time at which it was heard, in
// bulk. A connection that ends without a word is followed by silence, which the thresholds turn into a status.
package connections

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// The errors of Open.
var (
	// ErrTooMany means that the user has as many connections on this server as allowed.
	ErrTooMany = errors.New("the user has too many connections")
	// ErrStopping means that the server is stopping.
	ErrStopping = errors.New("the server is stopping")
)

const (
	// MaxGrace is the longest grace, and the longest delay of a leave.
	MaxGrace = time.Minute
	// MaxLater is the number of leaves that wait for their time on one server; more are written at once.
	MaxLater = 10_000
)

// Settings are those of a namespace.
type Settings struct {
	lastseen.Thresholds
	PingInterval time.Duration
}

// Options configures a registry. Store and Settings are required.
type Options struct {
	Store    store.Store
	Settings func(namespace string) Settings // current; called often, by several goroutines
	MaxUser  int                             // connections of one user on this server; default 16
	Random   func() float64                  // in [0, 1), for jitter; default math/rand/v2
	Logger   *slog.Logger                    // default slog.Default()
}

// Reason is why the registry has a connection closed.
type Reason int

// The reasons.
const (
	// Closed: the user was forgotten, or an operator closed the user's connections.
	Closed Reason = iota
	// Impossible: the namespace cannot have devices any longer, or its user cannot be recorded for another reason that
	// does not pass.
	Impossible
)

// Opening describes a connection that begins.
type Opening struct {
	Namespace, User string
	// Device is the ID of the device; empty for one that the registry makes. Several connections can have the same: each
	// has a record of its own.
	Device string
	Kind   lastseen.DeviceKind
	Meta   string
	Grace  time.Duration // from the end of the connection to its goodbye; 0 to MaxGrace
	// Close is called once, in a goroutine of its own, if the registry ends the connection. The transport closes it and
	// calls End with Silent.
	Close func(Reason)
}

// Ending is how a connection ended.
type Ending int

// The endings.
const (
	// Gone: the peer closed the connection, or it broke: a goodbye at the time at which it was heard last, written after
	// the grace.
	Gone Ending = iota
	// Silent: the peer was not heard any longer, or the server ended the connection: nothing is written, and the record
	// decays.
	Silent
	// Left: the client said goodbye by Leave before.
	Left
)

// Departure is a leave that is written later, unless a ping comes meanwhile: since it has the time at which it was
// asked for, a later ping makes it harmless.
type Departure struct {
	Namespace            string
	store.DeviceSighting               // Gone; with an empty ID it is of all devices
	After                time.Duration // up to MaxGrace
}

// Stats describes a registry at this moment, and since the start.
type Stats struct {
	Open      int   // connections of users
	Waiting   int   // goodbyes and leaves that wait for their time
	Evidence  int   // connections that were heard and have to be written, while the store is away
	Opened    int64 // since the start, as the rest
	Goodbyes  int64 // connections that ended with a leave, or whose goodbye was written after the grace
	Lost      int64 // connections that ended in silence
	Forgotten int64 // connections that were closed because of [Closed]
}

// Registry holds the connections of users on this server.
type Registry struct{ o Options }

// New returns a registry without connections. Run does its work.
func New(o Options) *Registry { return &Registry{o} }

// Run writes evidence and goodbyes, and closes what other servers ask to close, until the context ends.
func (r *Registry) Run(ctx context.Context) { <-ctx.Done() }

// Stop has Open fail from now on, writes the leaves and goodbyes that wait for their time, and returns when they are
// written or the context ends. Connections stay open; their ends write nothing any longer.
func (r *Registry) Stop(context.Context) {}

// Open records the connection's first ping, at the present by the store's clock, and returns the connection. Errors are
// ErrTooMany, ErrStopping and those of the store, and then there is no connection.
func (r *Registry) Open(context.Context, Opening) (*Connection, error) { return nil, ErrStopping }

// Later writes a leave after its delay; at once if too many wait. It returns an error only if it had to be written at
// once.
func (r *Registry) Later(context.Context, Departure) error { return ErrStopping }

// Stats returns the current statistics.
func (r *Registry) Stats() Stats { return Stats{} }

// Connection is a connection that a user holds open. Its methods may be called from many goroutines.
type Connection struct{ device string }

// Device returns the ID of the device.
func (c *Connection) Device() string { return c.device }

// Heard notes that the peer was heard at this moment. It is cheap, and writes nothing by itself.
func (c *Connection) Heard() {}

// SetIdle notes whether the person uses the device.
func (c *Connection) SetIdle(idle bool) {}

// Leave writes a goodbye at this moment and returns the user's state.
func (c *Connection) Leave(context.Context) (lastseen.State, error) {
	return lastseen.State{}, ErrStopping
}

// End notes that the connection ended. The first call counts.
func (c *Connection) End(Ending) {}
