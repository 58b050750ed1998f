package connections

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// callKind is the method of the store that writes an event.
type callKind int

const (
	recordDevices callKind = iota
	ping
	leave
)

func TestMain(m *testing.M) {
	testenv.LimitWalks(100)
	goleak.VerifyTestMain(m)
}

const (
	ns    = "chat"
	base  = lastseen.Instant(1_700_000_000_000)
	start = time.Hour // of monotonic time, when a test begins
)

// fixture is a registry on a store of the test, on clocks that the test sets.
type fixture struct {
	*Registry
	t     testing.TB
	store *fakeStore
	log   *bytes.Buffer

	mu     sync.Mutex
	closed map[string][]Reason // calls of Close by user
	left   int                 // by Options.Left
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	f := &fixture{t: t, store: newFakeStore(), closed: map[string][]Reason{}, log: &bytes.Buffer{}}
	o := Options{
		Store:    f.store,
		Settings: func(string) Settings { return f.store.settings },
		Random:   func() float64 { return 0 },
		Left:     func(_ string, n int) { f.left += n },
		Logger:   slog.New(slog.NewTextHandler(f.log, nil)),
	}
	for _, set := range change {
		set(&o)
	}
	f.Registry = New(o)
	f.monotonic = f.store.monotonic
	f.pause = func(_ context.Context, d time.Duration) { f.store.pass(d) }
	return f
}

func (f *fixture) opening(user string) Opening {
	return Opening{
		Namespace: ns, User: user, Device: "tab", Kind: lastseen.Web, Meta: `{"v":1}`, Grace: 5 * time.Second,
		Close: func(reason Reason) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.closed[user] = append(f.closed[user], reason)
		},
	}
}

func (f *fixture) open(user string) *Connection {
	f.t.Helper()
	c, err := f.Open(f.t.Context(), f.opening(user))
	require.NoError(f.t, err)
	return c
}

// newConnection returns a fixture with a connection of alice, whose first ping was taken.
func newConnection(t testing.TB) (*fixture, *Connection) {
	t.Helper()
	f := newFixture(t)
	c := f.open("alice")
	f.only()
	return f, c
}

// receive lets time pass, and then connections are active.
func (f *fixture) receive(after time.Duration, connections ...*Connection) {
	f.pass(after)
	for _, c := range connections {
		c.Received()
	}
}

// passWithError lets time pass while all calls of the store fail.
func (f *fixture) passWithError(d time.Duration, err error) {
	f.store.fail(err)
	f.pass(d)
	f.store.fail(nil)
}

// pass lets time pass, with a tick every 250 ms.
func (f *fixture) pass(d time.Duration) {
	for ; d > 0; d -= tickEvery {
		f.store.pass(min(d, tickEvery))
		f.tick(f.t.Context())
	}
}

// stay lets time pass, with connections that are active every 25 seconds at the latest.
func (f *fixture) stay(d time.Duration, received ...*Connection) {
	for ; d > 0; d -= 25 * time.Second {
		f.pass(min(d, 25*time.Second))
		for _, c := range received {
			c.Received()
		}
	}
}

// requireClosed waits until the connections of a user were closed for these reasons.
func (f *fixture) requireClosed(user string, reasons ...Reason) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.closed[user]) >= len(reasons)
	}, time.Minute, time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Equal(f.t, reasons, f.closed[user])
}

func (f *fixture) logged(text string) int { return strings.Count(f.log.String(), text) }

// written is an event that the store got.
type written struct {
	store.DeviceEvent
	call      callKind
	namespace string
	when      time.Duration // by the monotonic clock
	offset    time.Duration // of the store's clock at that moment
	failed    bool
}

// readClock is, for fakeStore.during, what is no write.
const readClock callKind = -1

// fakeStore is a store in memory, whose clocks and errors a test sets: a real one has no errors at such moments.
type fakeStore struct {
	store.Store

	mu          sync.Mutex
	settings    Settings
	elapsed     time.Duration
	wrong       time.Duration // by which the store's clock is off
	err         error         // of all calls
	refuse      func(kind callKind, namespace string) error
	writes      []written
	states      map[string]lastseen.State
	devices     map[string]lastseen.Devices
	hidden      map[string]lastseen.HiddenTime
	disconnects []store.Disconnect
	asked       int // calls of Disconnects
	during      func(kind callKind)
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		settings: Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
			PingInterval: 30 * time.Second,
		},
		elapsed: start, states: map[string]lastseen.State{}, devices: map[string]lastseen.Devices{},
		hidden: map[string]lastseen.HiddenTime{},
		refuse: func(callKind, string) error { return nil }, during: func(callKind) {},
	}
}

func (s *fakeStore) lock() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

func (s *fakeStore) monotonic() time.Duration {
	defer s.lock()()
	return s.elapsed
}

func (s *fakeStore) pass(d time.Duration) {
	defer s.lock()()
	s.elapsed += d
}

func (s *fakeStore) step(d time.Duration) {
	defer s.lock()()
	s.wrong += d
}

// fail has all calls fail, until it is called with nil.
func (s *fakeStore) fail(err error) {
	defer s.lock()()
	s.err = err
}

func (s *fakeStore) present() lastseen.Instant {
	return max(lastseen.MinInstant, base.Add(s.elapsed-start+s.wrong))
}

func (s *fakeStore) Now(context.Context) (lastseen.Instant, error) {
	s.during(readClock)
	defer s.lock()()
	return s.present(), nil
}

func (s *fakeStore) RecordDevices(
	_ context.Context, namespace string, window time.Duration, batch []store.DeviceEvent,
) ([]lastseen.State, error) {
	return s.write(recordDevices, namespace, batch, func(d store.DeviceEvent, key string) {
		s.states[key], s.devices[key] = s.devices[key].Assert(s.states[key], window, d.Record())
	})
}

func (s *fakeStore) Ping(_ context.Context, namespace string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	return s.write(ping, namespace, events(batch, false), func(d store.DeviceEvent, key string) {
		s.states[key] = s.states[key].AfterPing(d.At)
	})
}

func (s *fakeStore) Leave(_ context.Context, namespace string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	return s.write(leave, namespace, events(batch, true), func(d store.DeviceEvent, key string) {
		s.states[key], s.devices[key] = s.devices[key].Leave(s.states[key], d.At)
	})
}

func (s *fakeStore) ReadDevices(_ context.Context, namespace, user string) (store.UserDevices, error) {
	defer s.lock()()
	key := namespace + " " + user
	return store.UserDevices{State: s.states[key], Devices: s.devices[key]}, s.err
}

func events(batch []store.PresenceEvent, gone bool) (all []store.DeviceEvent) {
	for _, s := range batch {
		all = append(all, store.DeviceEvent{User: s.User, At: s.At, Gone: gone})
	}
	return all
}

func (s *fakeStore) write(
	kind callKind, namespace string, batch []store.DeviceEvent, do func(store.DeviceEvent, string),
) ([]lastseen.State, error) {
	s.during(kind)
	defer s.lock()()
	if len(batch) > maxBatch {
		return nil, errors.New("the batch is too large")
	}
	err := s.err
	if err == nil {
		err = s.refuse(kind, namespace)
	}
	var states []lastseen.State
	for _, d := range batch {
		d.At = store.Bounded(d.At, s.present())
		s.writes = append(s.writes, written{d, kind, namespace, s.elapsed, s.wrong, err != nil})
		key := namespace + " " + d.User
		if err == nil && !s.hidden[key].Hides(d.At, s.present(), store.MaxAhead) {
			do(d, key)
		}
		if err == nil {
			states = append(states, s.states[key])
		}
	}
	return states, err
}

func (s *fakeStore) Disconnects(
	_ context.Context, after store.DisconnectPosition,
) ([]store.Disconnect, store.DisconnectPosition, error) {
	defer s.lock()()
	s.asked++
	if s.err != nil {
		return nil, after, s.err
	}
	next := store.DisconnectPosition("position" + strings.Repeat(".", len(s.disconnects)))
	if after == "" {
		return nil, next, nil
	}
	if !strings.HasPrefix(string(after), "position") {
		return append([]store.Disconnect{{}}, s.disconnects...), next, nil
	}
	return append([]store.Disconnect(nil), s.disconnects[len(after)-len("position"):]...), next, nil
}

// close asks to close alice's connections.
func (s *fakeStore) close() { s.ask(store.Disconnect{Namespace: ns, User: "alice", At: s.present()}) }

// deleted says that the namespace is deleted.
func (s *fakeStore) deleted() { s.ask(store.Disconnect{Namespace: ns, At: s.present()}) }

func (s *fakeStore) ask(c store.Disconnect) {
	defer s.lock()()
	s.disconnects = append(s.disconnects, c)
}

// setInvisible makes alice leave and hides what follows, or ends that: see store.Availabilities.
func (s *fakeStore) setInvisible(invisible bool) {
	defer s.lock()()
	key := ns + " alice"
	if !invisible {
		s.hidden[key] = lastseen.HiddenTime{End: s.present(), Ended: true}
		return
	}
	s.states[key], s.devices[key] = s.devices[key].Leave(s.states[key], s.present())
	s.hidden[key] = lastseen.HiddenTime{End: lastseen.MaxInstant}
}

// take returns what was written since the last call.
func (s *fakeStore) take() []written {
	defer s.lock()()
	writes := s.writes
	s.writes = nil
	return writes
}

func (s *fakeStore) state(user string) lastseen.State {
	defer s.lock()()
	return s.states[ns+" "+user]
}
