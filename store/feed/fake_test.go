package feed

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// fakeStore keeps feeds of several shards. It is a fake because a test can stop it at any point, let it fail and begin
// its feeds again, and because its clock is that of a synctest bubble.
type fakeStore struct {
	store.Store // nil: nothing else is called
	shards      int

	mu      sync.Mutex
	feeds   map[string]*fakeFeed
	err     error         // of every call
	held    chan struct{} // reads of several feeds wait until it is closed; nil otherwise
	reads   []int         // how many feeds each call of ReadChanges read
	records int
	asked   int // snapshots
	missing map[string]bool
	checks  []int // for how many namespaces each call of Exist was
	frozen  bool
	ahead   time.Duration    // by which the clock is wrong
	listed  []store.Record   // by List; nil for as many as asked
	onList  func()           // called by List
	events  lastseen.Instant // the number of changes of states, which is the time of each
}

type fakeFeed struct {
	epoch   int
	off     bool // it is not recorded
	shards  [][]store.Change
	trimmed []int // of each shard
	states  map[string]store.Published
}

func newFakeStore(shards int) *fakeStore {
	return &fakeStore{shards: shards, feeds: map[string]*fakeFeed{}, missing: map[string]bool{}}
}

func (s *fakeStore) lock() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// locked changes what the store or the hub is to do.
func (s *fakeStore) locked(change func()) {
	defer s.lock()()
	change()
}

func (s *fakeStore) feed(namespace string) *fakeFeed {
	f := s.feeds[namespace]
	if f == nil {
		f = &fakeFeed{
			shards: make([][]store.Change, s.shards), trimmed: make([]int, s.shards),
			states: map[string]store.Published{}, off: true,
		}
		s.feeds[namespace] = f
	}
	return f
}

func (s *fakeStore) now() lastseen.Instant { return lastseen.InstantOf(time.Now()) }

func (f *fakeFeed) position(shard, n int) store.Position {
	return store.Position(fmt.Sprintf("%d.%d.%d", f.epoch, shard, n))
}

func (f *fakeFeed) positions() (positions []store.Position) {
	for shard, entries := range f.shards {
		positions = append(positions, f.position(shard, len(entries)))
	}
	return positions
}

// published returns what is published of a user: grey if nothing is known.
func (f *fakeFeed) published(user string) store.Published {
	if p, ok := f.states[user]; ok {
		return p
	}
	return store.Published{Status: lastseen.Grey}
}

// set changes what is published of a user in the namespace chat, which appends an entry if that is a change.
func (s *fakeStore) set(user string, status lastseen.Status) {
	s.update(user, func(p *store.Published) {
		s.events++
		p.State, p.Status = lastseen.State{At: s.events}, status
	})
}

// describe is set for what is published besides the state. The time of a state grows, so that tests see what is newer.
// It returns whether the user has one.
func (s *fakeStore) describe(user string, d store.Details) (known bool) {
	s.update(user, func(p *store.Published) {
		if known = p.Known(); known {
			s.events++
			p.At = s.events
		}
		p.Details = d
	})
	return known
}

func (s *fakeStore) update(user string, change func(*store.Published)) {
	defer s.lock()()
	f := s.feed("chat")
	was := f.published(user)
	now := was
	if change(&now); now.Status == lastseen.Grey {
		now.IdleSince = 0
	}
	f.states[user] = now
	if !now.Same(was) {
		s.append(f, user, was, now)
	}
}

func (s *fakeStore) forget(user string) {
	defer s.lock()()
	f := s.feed("chat")
	if was, ok := f.states[user]; ok {
		delete(f.states, user)
		s.append(f, user, was, store.Published{Status: lastseen.Grey})
	}
}

func (s *fakeStore) append(f *fakeFeed, user string, was, now store.Published) {
	shard := 0
	for _, c := range user {
		shard = (shard*31 + int(c)) % s.shards
	}
	f.shards[shard] = append(f.shards[shard], store.Change{
		User: user, Published: now, WasStatus: was.Status, WasLeft: was.Left, Was: was.Details,
		Recorded: s.now(), Shard: shard, Position: f.position(shard, len(f.shards[shard])+1),
	})
}

// beginAgain loses the feed, as a failover can, and keeps the states.
func (s *fakeStore) beginAgain(recorded bool) {
	defer s.lock()()
	f := s.feed("chat")
	f.epoch++
	f.off = !recorded
	f.shards, f.trimmed = make([][]store.Change, s.shards), make([]int, s.shards)
}

// trim deletes all entries so far.
func (s *fakeStore) trim() {
	defer s.lock()()
	f := s.feed("chat")
	for shard := range f.shards {
		f.trimmed[shard] = len(f.shards[shard])
	}
}

func (s *fakeStore) fail(err error) {
	defer s.lock()()
	s.err = err
}

func (s *fakeStore) state(user string) store.Published {
	defer s.lock()()
	return s.feed("chat").published(user)
}

func (s *fakeStore) RecordChanges(_ context.Context, namespace string, _ lastseen.Thresholds) error {
	defer s.lock()()
	s.records++
	if s.err != nil {
		return s.err
	}
	if s.missing[namespace] {
		return store.ErrNotRecorded
	}
	if f := s.feed(namespace); f.off {
		f.off = false
		f.epoch++
	}
	return nil
}

func (s *fakeStore) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	s.mu.Lock()
	s.reads = append(s.reads, len(reads))
	held := s.held
	s.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
		}
	}
	defer s.lock()()
	for _, r := range reads {
		if r.Limit < 1 || r.Limit > store.MaxChangesRead {
			panic("limit out of range")
		}
		if r.Err = s.err; r.Err == nil {
			s.read(s.feed(r.Namespace), r)
		}
	}
}

func (s *fakeStore) watermark() lastseen.Instant {
	if s.frozen {
		return 1
	}
	return s.now()
}

func (s *fakeStore) read(f *fakeFeed, r *store.ChangesRead) {
	if f.off {
		r.Err = store.ErrNotRecorded
		return
	}
	r.Watermark, r.Positions = s.watermark(), f.positions()
	if r.After == nil {
		return
	}
	if r.Reset = len(r.After) != s.shards; r.Reset {
		return
	}
	for shard, p := range r.After {
		var epoch, inShard, n int
		_, err := fmt.Sscanf(string(p), "%d.%d.%d", &epoch, &inShard, &n)
		if err != nil || epoch != f.epoch || inShard != shard || n < f.trimmed[shard] || n > len(f.shards[shard]) {
			r.Reset, r.Changes = true, nil
			r.Positions = f.positions()
			return
		}
		entries := f.shards[shard][n:]
		if len(entries) >= r.Limit {
			entries, r.More = entries[:r.Limit], true
		}
		r.Changes = append(r.Changes, entries...)
		r.Positions[shard] = f.position(shard, n+len(entries))
	}
}

func (s *fakeStore) SnapshotChanges(_ context.Context, namespace string, users []string) (store.Snapshot, error) {
	defer s.lock()()
	s.asked++
	f := s.feed(namespace)
	switch {
	case s.err != nil:
		return store.Snapshot{}, s.err
	case f.off:
		return store.Snapshot{}, store.ErrNotRecorded
	}
	snapshot := store.Snapshot{Positions: f.positions(), Watermark: s.watermark()}
	for _, user := range users {
		snapshot.Users = append(snapshot.Users, f.published(user))
	}
	return snapshot, nil
}

// world is a store with a hub, in a synctest bubble.
type fixture struct {
	*fakeStore
	*Hub
	t         *testing.T
	mode      Mode
	log       strings.Builder
	recorded  []string
	restarted []string
	random    float64
}

// inWorld runs a test with a hub on a fake store.
func withFixture(t *testing.T, shards int, test func(*fixture), change ...func(*Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{fakeStore: newFakeStore(shards), t: t, mode: Auto}
		o := Options{
			Store: w.fakeStore,
			Settings: func(string) Settings {
				w.fakeStore.mu.Lock()
				defer w.fakeStore.mu.Unlock()
				return Settings{Mode: w.mode}
			},
			Random:    func() float64 { return w.random },
			Logger:    slog.New(slog.NewTextHandler(&w.log, nil)),
			Recorded:  func(namespace string) { w.recorded = append(w.recorded, namespace) },
			Restarted: func(namespace string) { w.restarted = append(w.restarted, namespace) },
		}
		for _, c := range change {
			c(&o)
		}
		w.Hub = New(o)
		runHub(t, w.Hub)
		test(w)
	})
}

// runHub runs a hub until the test ends.
func runHub(t *testing.T, h *Hub) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// watch begins to watch and closes the watcher with the test.
func (w *fixture) watch(q Query) *Watcher {
	w.t.Helper()
	watcher, err := w.Watch(w.t.Context(), "chat", q)
	require.NoError(w.t, err)
	w.t.Cleanup(watcher.Close)
	return watcher
}

// next waits up to a time for a batch; nil if there is none.
func (w *fixture) next(watcher *Watcher, d time.Duration) *Batch {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	b, err := await(ctx, watcher, 10)
	if err != nil {
		require.ErrorIs(w.t, err, context.DeadlineExceeded)
		return nil
	}
	return &b
}

func (w *fixture) poll(watcher *Watcher, limit int) Batch {
	w.t.Helper()
	b, err := watcher.Poll(w.t.Context(), limit)
	require.NoError(w.t, err)
	return b
}

// polled begins to watch users and polls so many times: after the second time, changes come from memory.
func (w *fixture) polled(times int, users ...string) *Watcher {
	w.t.Helper()
	watcher := w.watch(Query{Users: users})
	for range times {
		w.poll(watcher, 10)
	}
	return watcher
}

// publish sets statuses, such as "ann green".
func (w *fixture) publish(changes ...string) {
	for _, c := range changes {
		user, status, _ := strings.Cut(c, " ")
		w.set(user, lastseen.Status(status))
	}
}

// requireSent requires, a second later, that a watcher is sent exactly these statuses.
func (w *fixture) requireSent(watcher *Watcher, want ...string) {
	w.t.Helper()
	time.Sleep(time.Second)
	require.ElementsMatch(w.t, want, names(w.poll(watcher, 10)))
}

// must returns a batch, which has to be there.
func (w *fixture) must(b *Batch) *Batch {
	w.t.Helper()
	require.NotNil(w.t, b)
	return b
}

// count returns what happened so far.
func (w *fixture) count() Stats {
	synctest.Wait()
	return w.Stats()
}
