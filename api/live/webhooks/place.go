package webhooks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lastseen/lastseen/store"
)

// place is how far a namespace was delivered. It is kept in the store, so that another server goes on from there.
type place struct {
	// Events are delivered first, in order. They are kept before the first of them is sent, so each repetition has the
	// same bytes and the same ID.
	Events    []event          `json:",omitempty"`
	Positions []store.Position `json:",omitempty"` // where to read on after that; none to begin with a snapshot
	Paging    bool             `json:",omitempty"` // a snapshot continues there
}

// saveEvery is how often a place is kept that moves although nothing is reported, so that it stays in the feed.
const saveEvery = time.Minute

// errMoved means that another server delivers, too, and is ahead.
var errMoved = errors.New("another server delivers the namespace")

// load reads the place. Without positions it begins with a snapshot, and if anything was ever kept, that is lost. A
// place is lost as well if the store may have moved it back, and the feed with it: the receiver may know more than
// both. It is not at fault, so the reset need not wait.
func (s *stream) load(ctx context.Context) error {
	kept, n, err := readNote[place](ctx, s.r.o.Store, s.r.name, s.namespace)
	if err != nil {
		return err
	}
	if n.Restored {
		kept, s.resetAt = place{}, time.Time{}
	}
	s.place, s.version, s.saved, s.lost = kept, n.Version, time.Now(), s.lost || n.Version != ""
	return nil
}

// save keeps the place. It returns errMoved if another server kept one since.
func (s *stream) save(ctx context.Context) error {
	version, err := writeNote(ctx, s.r.o.Store, s.r.name, s.namespace, s.version, s.place)
	if err == nil && version == "" {
		err = errMoved
	}
	if err != nil {
		return err
	}
	s.version, s.saved, s.lost = version, time.Now(), true
	return nil
}

// lose has the next follow begin with a reset.
func (s *stream) lose(ctx context.Context) error {
	s.place = place{}
	if err := s.save(ctx); err != nil {
		return err
	}
	return errAgain
}

// forget deletes what is kept of a namespace that is not delivered any longer.
func (s *stream) forget(ctx context.Context) {
	_, _ = s.r.o.Store.SetNote(ctx, notePrefix+s.r.name, s.namespace, s.version, store.Note{}) // otherwise it expires
}

// send keeps events, and where to read on after them, and delivers them.
func (s *stream) send(ctx context.Context, p place) error {
	s.place = p
	if err := s.save(ctx); err != nil {
		return err
	}
	return s.sendKept(ctx)
}

// sendKept delivers the events that are kept.
func (s *stream) sendKept(ctx context.Context) error {
	for len(s.place.Events) > 0 {
		instead, err := s.deliver(ctx, s.place.Events[0])
		if err != nil {
			return err
		}
		s.place.Events = append(instead, s.place.Events[1:]...)
		if err := s.save(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settled returns where to read on if nothing but what is delivered is to be missed.
func (s *stream) settled() []store.Position {
	if c := s.held.first(); c != nil {
		return c.from
	}
	return s.read
}

// keepUp keeps the place if it moved a while ago, and returns when to call it again.
func (s *stream) keepUp(ctx context.Context) (time.Duration, error) {
	if slices.Equal(s.settled(), s.place.Positions) {
		return saveEvery, nil
	}
	if wait := time.Until(s.saved.Add(saveEvery)); wait > 0 {
		return wait, nil
	}
	s.place = place{Positions: s.settled(), Paging: s.place.Paging}
	return saveEvery, s.save(ctx)
}
