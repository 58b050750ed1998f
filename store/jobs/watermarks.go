package jobs

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

const (
	advanceEvery = time.Second // the watermarks of feeds are moved
	advanceCalls = 200         // in this time at most: a backlog is worked off without a pause between them
	recordEvery  = time.Minute // feeds that are always recorded are renewed
	recordAgain  = 5 * time.Second
)

// Watermarks moves the watermarks of changes feeds once a second, so that silent users turn yellow and grey in
// the feed. The feed of each namespace is advanced by one process at a time: see [store.Changes]. Every server runs the
// job, whether it advances a feed at the moment or not.
type Watermarks struct {
	// Observe is called after each advance of a feed that appended transitions, with the lag of the one that waited
	// longest. Set it before Run; default nil.
	Observe func(lag time.Duration)

	store    store.Store
	always   func() []string
	settings func(namespace string) feed.Settings
	logger   *slog.Logger

	monotonic func() time.Duration // time since the start

	failing bool // an error was logged

	transitions atomic.Int64
	begun       atomic.Int64

	mu      sync.Mutex
	added   map[string]int // the number of the call of Add that was the last for the namespace
	number  int
	records map[string]record // of each namespace that always has a feed
}

// record says how recording the changes of a namespace went.
type record struct {
	next    time.Duration // when to do it again
	failing bool          // an error was logged
}

// WatermarkStats describes what the job did on this server since the start.
type WatermarkStats struct {
	Transitions int64 // changes of status that it appended
	Begun       int64 // feeds that it had to begin again: their readers got a reset
}

// NewWatermarks returns the job for a store. Namespaces returns those that always have a feed; the job also advances
// those that are added, until their feeds have ended.
func NewWatermarks(
	s store.Store, namespaces func() []string, settings func(namespace string) feed.Settings, logger *slog.Logger,
) *Watermarks {
	start := time.Now()
	return &Watermarks{
		store: s, always: namespaces, settings: settings, logger: logger,
		Observe: func(time.Duration) {}, records: map[string]record{}, added: map[string]int{},
		monotonic: func() time.Duration { return time.Since(start) },
	}
}

// Stats returns the current statistics.
func (s *Watermarks) Stats() WatermarkStats {
	return WatermarkStats{Transitions: s.transitions.Load(), Begun: s.begun.Load()}
}

// Add advances the feed of a namespace from now on, until it has no feed.
func (s *Watermarks) Add(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	s.added[namespace] = s.number
}

// Run advances feeds until the context ends.
func (s *Watermarks) Run(ctx context.Context) {
	var recording sync.WaitGroup
	defer recording.Wait()
	recording.Go(func() { s.every(ctx, s.record) })
	s.every(ctx, s.advance)
}

// every calls round once a second.
func (s *Watermarks) every(ctx context.Context, round func(context.Context)) {
	ticker := time.NewTicker(advanceEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		round(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// record has the changes recorded of those namespaces that always have a feed.
func (s *Watermarks) record(ctx context.Context) {
	on := s.alwaysOn()
	s.mu.Lock()
	for namespace := range s.records {
		if !on[namespace] {
			delete(s.records, namespace)
		}
	}
	s.mu.Unlock()
	for namespace := range on {
		s.mu.Lock()
		last, known := s.records[namespace]
		s.mu.Unlock()
		if ctx.Err() != nil || known && s.monotonic() < last.next {
			continue
		}
		err := s.store.RecordChanges(ctx, namespace, s.settings(namespace).Thresholds)
		if ctx.Err() == nil {
			s.noteRecord(namespace, last.failing, err)
		}
	}
}

// noteRecord logs the first error of a namespace, and decides when to try again.
func (s *Watermarks) noteRecord(namespace string, failing bool, err error) {
	after := recordEvery
	if err != nil {
		after = recordAgain
		if !failing && !errors.Is(err, store.ErrNotRecorded) { // it does not exist
			s.logger.Warn("cannot record changes; trying again", "namespace", namespace, "error", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[namespace] = record{next: s.monotonic() + after, failing: err != nil}
}

func (s *Watermarks) alwaysOn() map[string]bool {
	on := map[string]bool{}
	for _, namespace := range s.always() {
		if s.settings(namespace).Mode == feed.On {
			on[namespace] = true
		}
	}
	return on
}

// advance advances all feeds in one call, and at once again those that have more to append.
func (s *Watermarks) advance(ctx context.Context) {
	s.mu.Lock()
	added := maps.Clone(s.added)
	s.mu.Unlock()
	advances := s.advances(added)
	var failed error
	for calls := 0; len(advances) > 0 && calls < advanceCalls && ctx.Err() == nil; calls++ {
		var err error
		if advances, err = s.call(ctx, advances, added); err != nil {
			failed = err
		}
	}
	if ctx.Err() != nil {
		return
	}
	if failed != nil && !s.failing {
		s.logger.Warn("cannot record users who turned yellow or grey; trying again", "error", failed)
	}
	s.failing = failed != nil
}

// advances returns an advance for each namespace that has a feed, as far as is known.
func (s *Watermarks) advances(added map[string]int) (advances []*store.ChangesAdvance) {
	namespaces := s.alwaysOn()
	for namespace := range added {
		namespaces[namespace] = true
	}
	for namespace := range namespaces {
		settings := s.settings(namespace)
		if settings.Mode == feed.Off {
			s.drop(namespace, added[namespace])
			continue
		}
		advances = append(advances, &store.ChangesAdvance{Namespace: namespace, Thresholds: settings.Thresholds})
	}
	return advances
}

// call makes one call and returns the advances that have to be repeated.
func (s *Watermarks) call(
	ctx context.Context, advances []*store.ChangesAdvance, added map[string]int,
) (again []*store.ChangesAdvance, failed error) {
	now, err := s.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range advances {
		*w = store.ChangesAdvance{Namespace: w.Namespace, Thresholds: w.Thresholds, Now: now}
	}
	s.store.AdvanceChanges(ctx, advances)
	for _, w := range advances {
		switch {
		case errors.Is(w.Err, store.ErrNotRecorded), errors.Is(w.Err, store.ErrNoFeed):
			s.drop(w.Namespace, added[w.Namespace])
		case w.Err != nil:
			failed = w.Err
		default:
			s.count(w)
			if w.More { // in a shard that this process advances
				again = append(again, w)
			}
		}
	}
	return again, failed
}

func (s *Watermarks) count(w *store.ChangesAdvance) {
	if w.Transitions > 0 {
		s.transitions.Add(int64(w.Transitions))
		s.Observe(w.Lag)
	}
	if w.Begun {
		s.begun.Add(1)
		s.logger.Info("a changes feed began again; its readers get a reset", "namespace", w.Namespace)
	}
}

// drop stops advancing the feed of a namespace, unless it was added again since. If it always has a feed, it gets a new
// one.
func (s *Watermarks) drop(namespace string, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.records[namespace]; !last.failing {
		delete(s.records, namespace)
	}
	if s.added[namespace] == number {
		delete(s.added, namespace)
	}
}
