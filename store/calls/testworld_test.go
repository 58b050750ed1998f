package calls

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

func TestMain(m *testing.M) {
	testenv.LimitWalks(100)
	goleak.VerifyTestMain(m)
}

const (
	ns        = "chat"
	tick      = 50 * time.Millisecond
	ring      = 30 * time.Second
	quiet     = time.Minute
	heardEach = 22 * time.Second // on each connection
)

// world is a few servers on one store, with connections that read a call each time that it is signalled, and that are
// heard regularly. Time passes by pass alone.
type world struct {
	*network

	t       *testing.T
	store   store.Store
	elapsed atomic.Int64
	log     *bytes.Buffer
	servers []*server
	ids     int
}

// server is a keeper with the connections of a server.
type server struct {
	*Keeper
	*handle
	t           *testing.T
	connections map[lastseen.UserKey]*connection
	loops       []*loopState
	late        []time.Duration

	mu      sync.Mutex
	signals []store.Signal // that its connections have to handle
	told    map[string][]lastseen.Call
}

type connection struct {
	device string
	since  time.Duration
	silent bool // nothing was heard since then
}

// loopState says when a loop of a keeper does its work again.
type loopState struct {
	wake wake
	work func(context.Context) time.Duration
	next time.Duration
}

const base = lastseen.Instant(1_700_000_000_000)

// newWorld returns a world on the embedded store, with a number of servers. Each write is flushed before it returns: by
// the test's clock, a flush in the background could take hours.
func newWorld(t *testing.T, servers int) *world {
	w := &world{t: t, log: &bytes.Buffer{}}
	w.network = &network{monotonic: w.monotonic}
	w.elapsed.Store(int64(time.Hour))
	s, err := filestore.Open(filestore.Options{
		Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: 0, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.UnixMilli(int64(base)).Add(w.monotonic()) }, Monotonic: w.monotonic,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w.store = s
	for range servers {
		w.add()
	}
	return w
}

func newSingle(t *testing.T) (*world, *server) {
	w := newWorld(t, 1)
	return w, w.servers[0]
}

func newPair(t *testing.T) (w *world, a, b *server) {
	w = newWorld(t, 2)
	return w, w.servers[0], w.servers[1]
}

func (w *world) monotonic() time.Duration { return time.Duration(w.elapsed.Load()) }

func (w *world) add() {
	s := &server{t: w.t, connections: map[lastseen.UserKey]*connection{}, told: map[string][]lastseen.Call{}}
	s.handle = w.network.add(w.store)
	s.Keeper = New(s.handle, slog.New(slog.NewTextHandler(w.log, nil)))
	s.monotonic = w.monotonic
	s.Heard = s.hears
	s.Late = func(lag time.Duration) { s.late = append(s.late, lag) }
	s.receive = func(signal store.Signal) {
		s.Receive(signal)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.signals = append(s.signals, signal)
	}
	s.loops = []*loopState{
		{wake: s.results.wake, work: s.results.work},
		{wake: s.hearing.wake, work: s.hearing.work},
		{wake: s.watch.wake, work: s.watch.work},
	}
	w.servers = append(w.servers, s)
}

func (w *world) kill(s *server) {
	for i := range w.servers {
		if w.servers[i] == s {
			w.servers = append(w.servers[:i:i], w.servers[i+1:]...)
			break
		}
	}
	s.receive = nil
}

// connect opens a connection that knows no call.
func (s *server) connect(user, device string) *connection {
	c := &connection{device: device, since: s.monotonic()}
	s.connections[lastseen.UserKey{Namespace: ns, User: user}] = c
	return c
}

// connect has alice connected to one server and bob to another one.
func connect(alice, bob *server) {
	alice.connect("alice", "")
	bob.connect("bob", "")
}

func (s *server) hears(namespace, user, device string, within time.Duration) bool {
	c := s.connections[lastseen.UserKey{Namespace: namespace, User: user}]
	if c == nil || device != "" && device != c.device {
		return false
	}
	age := s.monotonic() - c.since
	if !c.silent {
		age %= heardEach
	}
	return age <= within
}

// pass lets time pass. The loops of the servers do their work when they asked for it.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for ; d > 0; d -= tick {
		w.settle()
		w.elapsed.Add(int64(min(d, tick)))
	}
	w.settle()
}

// settle has the servers do what they have to do now.
func (w *world) settle() {
	w.t.Helper()
	for rounds := 0; w.round(); rounds++ {
		require.Less(w.t, rounds, 10_000, "a loop does not end")
	}
}

func (w *world) round() (busy bool) {
	for _, s := range w.servers {
		busy = s.readCalls(w.t.Context()) || busy
		for _, l := range s.loops {
			woken := false
			select {
			case <-l.wake:
				woken = true
			default:
			}
			if woken || w.monotonic() >= l.next {
				l.next = w.monotonic() + l.work(w.t.Context())
				busy = true
			}
		}
		s.watch.running.Wait()
	}
	return busy
}

// readCalls does what connections do with signals.
func (s *server) readCalls(ctx context.Context) (busy bool) {
	s.mu.Lock()
	signals := s.signals
	s.signals = nil
	s.mu.Unlock()
	for _, signal := range signals {
		change := OfSignal(signal)
		for _, user := range change.Users {
			if s.connections[lastseen.UserKey{Namespace: signal.Namespace, User: user}] == nil {
				continue
			}
			busy = true
			c, err := store.ReadCall(ctx, s, signal.Namespace, change.ID)
			if err != nil {
				s.mu.Lock()
				s.signals = append(s.signals, Signal(signal.Namespace, change.ID, user)) // try again later
				s.mu.Unlock()
				busy = false
				continue
			}
			s.told[user] = append(s.told[user], c)
			s.Follow(signal.Namespace, user, c)
		}
	}
	return busy
}

// states returns the states that a user's connection was told.
func (s *server) states(user string) (states []lastseen.CallState) {
	for _, c := range s.told[user] {
		if n := len(states); n == 0 || states[n-1] != c.State {
			states = append(states, c.State)
		}
	}
	return states
}

func (w *world) call(from, to string) store.NewCall {
	w.ids++
	id := fmt.Sprint("call-", w.ids)
	return store.NewCall{
		ID: id, From: from, To: to, Ring: ring, Quiet: quiet, Shown: true, Key: id, Digest: "of " + id,
	}
}

func (w *world) rings(s *server, from, to string) string {
	w.t.Helper()
	return w.starts(s, w.call(from, to))
}

func (w *world) starts(s *server, c store.NewCall) string {
	w.t.Helper()
	step, err := done(s.Start(w.t.Context(), ns, c))
	require.NoError(w.t, err)
	require.Equal(w.t, lastseen.Stepped, step.Outcome)
	return c.ID
}

func (w *world) acts(s *server, id, user string, action lastseen.CallAction) lastseen.CallOutcome {
	w.t.Helper()
	step, err := done(s.Act(w.t.Context(), ns, store.CallAct{ID: id, User: user, Action: action}))
	require.NoError(w.t, err)
	return step.Outcome
}

// requireState requires that a call has a state, and, if it is over, that the store knows: nothing is left to be ended.
func (w *world) requireState(id string, want lastseen.CallState) {
	w.t.Helper()
	c, err := store.ReadCall(w.t.Context(), w.store, ns, id)
	require.NoError(w.t, err)
	require.Equal(w.t, want, c.State)
	if want.Over() {
		late, err := w.store.ExpireCalls(w.t.Context(), ns)
		require.NoError(w.t, err)
		require.Empty(w.t, late.Steps, "nobody has ended it")
	}
}

// requireInCall requires that, of alice and bob, exactly these are shown to be in a call.
func (w *world) requireInCall(users ...string) {
	w.t.Helper()
	now, err := w.store.Now(w.t.Context())
	require.NoError(w.t, err)
	_, details, err := w.store.Describe(w.t.Context(), ns, []string{"alice", "bob"})
	require.NoError(w.t, err)
	var got []string
	for user, d := range details {
		if d.InCallUntil > now {
			got = append(got, user)
		}
	}
	require.ElementsMatch(w.t, users, got)
}

// away has all calls of all servers fail, until back.
func (w *world) away() {
	for _, s := range w.servers {
		s.fail = func(string) error { return store.ErrUnavailable }
	}
}

// failing has one method fail.
func (s *server) failing(method string, err error) {
	s.fail = func(name string) error {
		if name == method {
			return err
		}
		return nil
	}
}

func (w *world) back() {
	for _, s := range w.servers {
		s.fail = func(string) error { return nil }
	}
}

func countLines(text string) int { return strings.Count(text, "\n") }

// done finishes what a keeper did, as a server does once it has sent the response.
func done(step store.CallStep, finish func(), err error) (store.CallStep, error) {
	finish()
	return step, err
}
