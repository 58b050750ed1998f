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
	ns           = "chat"
	tick         = 50 * time.Millisecond
	ring         = 30 * time.Second
	timeout      = time.Minute
	receivedEach = 22 * time.Second // on each connection
)

// fixture is a few servers on one store, with connections that read a call each time that it is signalled, and that are
// active regularly. Time passes by pass alone.
type fixture struct {
	*network

	t       *testing.T
	store   store.Store
	elapsed atomic.Int64
	log     *bytes.Buffer
	servers []*server
	ids     int
}

// server is a manager with the connections of a server.
type server struct {
	*Manager
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
	silent bool // nothing was received since then
}

// loopState says when a loop of a manager does its work again.
type loopState struct {
	wake store.Waker
	work func(context.Context) time.Duration
	next time.Duration
}

const base = lastseen.Instant(1_700_000_000_000)

// newFixture returns a fixture on the embedded store, with a number of servers. Each write is flushed before it
// returns: by the test's clock, a flush in the background could take hours.
func newFixture(t *testing.T, servers int) *fixture {
	f := &fixture{t: t, log: &bytes.Buffer{}}
	f.network = &network{monotonic: f.monotonic}
	f.elapsed.Store(int64(time.Hour))
	s, err := filestore.Open(filestore.Options{
		Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: 0, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.UnixMilli(int64(base)).Add(f.monotonic()) }, Monotonic: f.monotonic,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	f.store = s
	for range servers {
		f.add()
	}
	return f
}

func newSingle(t *testing.T) (*fixture, *server) {
	f := newFixture(t, 1)
	return f, f.servers[0]
}

func newPair(t *testing.T) (f *fixture, a, b *server) {
	f = newFixture(t, 2)
	return f, f.servers[0], f.servers[1]
}

func (f *fixture) monotonic() time.Duration { return time.Duration(f.elapsed.Load()) }

func (f *fixture) add() {
	s := &server{t: f.t, connections: map[lastseen.UserKey]*connection{}, told: map[string][]lastseen.Call{}}
	s.handle = f.network.add(f.store)
	s.Manager = New(s.handle, slog.New(slog.NewTextHandler(f.log, nil)))
	s.monotonic = f.monotonic
	s.Active = s.activeWithin
	s.Late = func(lag time.Duration) { s.late = append(s.late, lag) }
	s.receive = func(signal store.Signal) {
		s.Receive(signal)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.signals = append(s.signals, signal)
	}
	s.loops = []*loopState{
		{wake: s.postprocessor.wake, work: s.postprocessor.work},
		{wake: s.keepAlive.wake, work: s.keepAlive.work},
		{wake: s.watch.wake, work: s.watch.work},
	}
	f.servers = append(f.servers, s)
}

func (f *fixture) kill(s *server) {
	for i := range f.servers {
		if f.servers[i] == s {
			f.servers = append(f.servers[:i:i], f.servers[i+1:]...)
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

func (s *server) activeWithin(namespace, user, device string, within time.Duration) bool {
	c := s.connections[lastseen.UserKey{Namespace: namespace, User: user}]
	if c == nil || device != "" && device != c.device {
		return false
	}
	age := s.monotonic() - c.since
	if !c.silent {
		age %= receivedEach
	}
	return age <= within
}

// pass lets time pass. The loops of the servers do their work when they asked for it.
func (f *fixture) pass(d time.Duration) {
	f.t.Helper()
	for ; d > 0; d -= tick {
		f.settle()
		f.elapsed.Add(int64(min(d, tick)))
	}
	f.settle()
}

// settle has the servers do what they have to do now.
func (f *fixture) settle() {
	f.t.Helper()
	for rounds := 0; f.round(); rounds++ {
		require.Less(f.t, rounds, 10_000, "a loop does not end")
	}
}

func (f *fixture) round() (busy bool) {
	for _, s := range f.servers {
		busy = s.readCalls(f.t.Context()) || busy
		for _, l := range s.loops {
			woken := false
			select {
			case <-l.wake:
				woken = true
			default:
			}
			if woken || f.monotonic() >= l.next {
				l.next = f.monotonic() + l.work(f.t.Context())
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

func (f *fixture) call(from, to string) store.NewCall {
	f.ids++
	id := fmt.Sprint("call-", f.ids)
	return store.NewCall{
		ID: id, From: from, To: to, Ring: ring, Timeout: timeout, Shown: true, Key: id, Digest: "of " + id,
	}
}

func (f *fixture) rings(s *server, from, to string) string {
	f.t.Helper()
	return f.starts(s, f.call(from, to))
}

func (f *fixture) starts(s *server, c store.NewCall) string {
	f.t.Helper()
	step, err := done(s.Start(f.t.Context(), ns, c))
	require.NoError(f.t, err)
	require.Equal(f.t, lastseen.Stepped, step.Outcome)
	return c.ID
}

func (f *fixture) acts(s *server, id, user string, action lastseen.CallAction) lastseen.CallOutcome {
	f.t.Helper()
	step, err := done(s.Act(f.t.Context(), ns, store.CallAct{ID: id, User: user, Action: action}))
	require.NoError(f.t, err)
	return step.Outcome
}

// requireState requires that a call has a state, and, if it is over, that the store knows: nothing is left to be ended.
func (f *fixture) requireState(id string, want lastseen.CallState) {
	f.t.Helper()
	c, err := store.ReadCall(f.t.Context(), f.store, ns, id)
	require.NoError(f.t, err)
	require.Equal(f.t, want, c.State)
	if want.Over() {
		late, err := f.store.ExpireCalls(f.t.Context(), ns)
		require.NoError(f.t, err)
		require.Empty(f.t, late.Steps, "nobody has ended it")
	}
}

// requireInCall requires that, of alice and bob, exactly these are shown to be in a call.
func (f *fixture) requireInCall(users ...string) {
	f.t.Helper()
	now, err := f.store.Now(f.t.Context())
	require.NoError(f.t, err)
	_, details, err := f.store.Describe(f.t.Context(), ns, []string{"alice", "bob"})
	require.NoError(f.t, err)
	var got []string
	for user, d := range details {
		if d.InCallUntil > now {
			got = append(got, user)
		}
	}
	require.ElementsMatch(f.t, users, got)
}

// away has all calls of all servers fail, until back.
func (f *fixture) away() {
	for _, s := range f.servers {
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

func (f *fixture) back() {
	for _, s := range f.servers {
		s.fail = func(string) error { return nil }
	}
}

func countLines(text string) int { return strings.Count(text, "\n") }

// done finishes what a manager did, as a server does once it has sent the response.
func done(step store.CallStep, finish func(), err error) (store.CallStep, error) {
	finish()
	return step, err
}
