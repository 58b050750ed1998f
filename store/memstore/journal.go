package memstore

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Journal makes the writes of a store, and keeps what they change.
type Journal interface {
	// Do makes a write with [Tables.Run] or [Tables.Stage], and returns when it is as durable as promised.
	Do(ctx context.Context, w Write) error

	// Outlasts reports whether writes can be made after a call of Do that failed.
	Outlasts() bool
}

// Log receives what writes change, in order. Each change states a result: receiving some of them twice, in the same
// order, ends as receiving them once. A namespace that is named in a change exists from then on; In changes nothing
// else. Set keeps the devices of a user, and SetDevices the meta of records that are not in meta. Forget and Drop
// delete a user and a namespace; so do Trim and Unlist, but availability stays. Hide with the zero value deletes the
// hidden time. ChangeContacts adds contacts and then removes others, both in bytewise order; used is the last known
// use of the owner from then on, 0 for the one before.
type Log interface {
	In(namespace string)
	Set(namespace, user string, s lastseen.State)
	SetDevices(namespace, user string, s lastseen.State, d lastseen.Devices, meta map[string]string)
	Forget(namespace, user string)
	Trim(namespace, user string)
	SetAvailability(namespace, user string, s lastseen.AvailabilityState)
	Hide(namespace, user string, h Hidden)
	ChangeContacts(namespace, owner string, used lastseen.Instant, add, remove []string)
	Drop(namespace string)
	Unlist(namespace string)
}

// Write is a change to the tables. The zero Write changes nothing.
type Write struct {
	op      op
	Durable bool // Do returns only when this write, and all before it, are kept
	Alone   bool // it reads the tables themselves: nothing else may be staged with it
}

// op changes the data.
type op interface{ do(t *transaction) }

type opFunc func(*transaction)

func (f opFunc) do(t *transaction) { f(t) }

func (w Write) do(t *transaction) {
	if w.op != nil {
		w.op.do(t)
	}
}

// Discard returns a log that ignores everything.
func Discard() Log { return nothing{} }

type nothing struct{}

func (nothing) In(string)                                                                         {}
func (nothing) Set(_, _ string, _ lastseen.State)                                                 {}
func (nothing) SetDevices(_, _ string, _ lastseen.State, _ lastseen.Devices, _ map[string]string) {}
func (nothing) Forget(_, _ string)                                                                {}
func (nothing) Trim(_, _ string)                                                                  {}
func (nothing) SetAvailability(_, _ string, _ lastseen.AvailabilityState)                         {}
func (nothing) Hide(_, _ string, _ Hidden)                                                        {}
func (nothing) Drop(string)                                                                       {}
func (nothing) Unlist(string)                                                                     {}
func (nothing) ChangeContacts(_, _ string, _ lastseen.Instant, _, _ []string)                     {}

// Run makes a write at once, and adds what it changes to a log.
func (x *Tables) Run(w Write, log Log) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return store.ErrClosed
	}
	x.direct = transaction{index: &x.index, log: log, maxNamespaces: x.options.MaxNamespaces}
	w.do(&x.direct)
	return nil
}

// Staged are writes that are made together later. Until then, only calls and feeds may change the tables as well.
type Staged struct {
	tables *Tables
	transaction
}

// Stage returns staged writes, whose changes are added to a log.
func (x *Tables) Stage(log Log) *Staged {
	return &Staged{x, transaction{
		index: &x.index, log: log, maxNamespaces: x.options.MaxNamespaces,
		staged: map[lastseen.UserKey]lastseen.State{}, adds: map[string]struct{}{},
		devices:        map[string]map[string]deviceChange{},
		availabilities: map[lastseen.UserKey]lastseen.AvailabilityState{},
		hidden:         map[lastseen.UserKey]Hidden{}, contacts: map[lastseen.UserKey]ownedContacts{},
	}}
}

// Do adds a write.
func (s *Staged) Do(w Write) {
	s.tables.mu.RLock() // who is in a call changes meanwhile
	defer s.tables.mu.RUnlock()
	w.do(&s.transaction)
}

// Make makes the writes.
func (s *Staged) Make() {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	s.apply()
}
