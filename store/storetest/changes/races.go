package changes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

const raceUsers = 12

// testChangesConcurrent: while users come, go, turn yellow or grey, and are forgotten, readers begin with snapshots at
// any time. To each of them, each entry continues from what it knew of the user, and in the end it knows what is there.
func testChangesConcurrent(t *testing.T, s store.Store) { testConcurrentWrites(t, s, randomWrite) }

// testConcurrentWrites has random writes made at once.
func testConcurrentWrites(t *testing.T, s store.Store, write func(*feed, *rand.Rand) error) {
	const writers, readers, writes = 4, 3, 150
	f := Begin(t, s)
	var writing, others sync.WaitGroup
	stop := make(chan struct{})
	others.Go(func() { advanceUntil(t, f, stop) })
	views := make([]*view, readers)
	for i := range views {
		others.Go(func() { views[i] = readUntil(t, f, stop) })
	}
	for w := range writers {
		random := rand.New(rand.NewPCG(uint64(w), 2))
		writing.Go(func() {
			for range writes {
				if err := write(f, random); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	others.Wait()
	require.False(t, t.Failed())

	f.advanceOnce(maxPlayed)
	names := raceNames()
	snapshot := f.snapshot(names...)
	states, described, err := s.Describe(context.Background(), kit.Namespace, names)
	require.NoError(t, err)
	for _, v := range views {
		require.NoError(t, v.readOn(s))
		for i, user := range names {
			want := store.Publish(f.thresholds, states[i], described[user], f.start+maxPlayed)
			require.Equal(t, want, snapshot.Users[i])
			require.Equal(t, want.Status, v.users[user].Status)
			require.Equal(t, want.Details, v.users[user].Details)
			require.Equal(t, want.Left, v.users[user].Left)
		}
	}
}

func raceNames() (names []string) {
	for i := range raceUsers {
		names = append(names, fmt.Sprint("u", i))
	}
	return names
}

// randomWrite writes about one of a few users at a time around one of the thresholds.
func randomWrite(f *feed, random *rand.Rand) (err error) {
	user := fmt.Sprint("u", random.IntN(raceUsers))
	at := []lastseen.Instant{f.start, f.yellowAt(0), f.greyAt(0)}[random.IntN(3)]
	at += lastseen.Instant(random.IntN(maxPlayed))
	batch := []store.PresenceEvent{{User: user, At: at}}
	switch random.IntN(12) {
	case 0:
		err = f.s.Forget(context.Background(), kit.Namespace, user)
	case 1, 2:
		_, err = f.s.Leave(context.Background(), kit.Namespace, batch)
	case 3, 4, 5, 6:
		c := devices.Claim{ID: []string{"a", "b"}[random.IntN(2)], At: at, Gone: random.IntN(2) == 0}
		err = c.Try(f.s, user)
	default:
		_, err = f.s.Ping(context.Background(), kit.Namespace, batch)
	}
	return err
}

// randomTalk calls a random method for a random user: it sets an availability, which may be invisible, pings, leaves,
// records a device, or forgets the user.
func randomTalk(f *feed, random *rand.Rand) (err error) {
	ctx, user := context.Background(), fmt.Sprint("u", random.IntN(raceUsers))
	at := f.yellowAt(lastseen.Instant(random.IntN(maxPlayed)))
	batch := []store.PresenceEvent{{User: user, At: at}}
	switch random.IntN(8) {
	case 0:
		err = f.s.Forget(ctx, kit.Namespace, user)
	case 1:
		_, err = f.s.Leave(ctx, kit.Namespace, batch)
	case 2, 3:
		both := []store.DeviceEvent{availability.IdleAt(user, "a", at), devices.On(user, "b", at-1)}
		_, err = f.s.RecordDevices(ctx, kit.Namespace, devices.WindowTime, both[random.IntN(2):])
	case 4, 5:
		_, err = f.s.Ping(ctx, kit.Namespace, batch)
	default:
		what := availability.State([]lastseen.Availability{"", lastseen.Busy, lastseen.Invisible}[random.IntN(3)],
			"a note")
		if random.IntN(2) == 0 {
			what.Until = f.start + lastseen.Instant(random.IntN(maxPlayed))
		}
		_, err = f.s.SetAvailability(ctx, kit.Namespace, user, what, f.start-kit.Minute)
	}
	return err
}

// testAvailabilityChangesConcurrent is testChangesConcurrent with users who set an availability, or become invisible.
func testAvailabilityChangesConcurrent(t *testing.T, s store.Store) {
	availability.SetAt(t, s, "u0", availability.Invisible,
		kit.Now(t, s)-kit.Minute) // from here on, every server knows that there are invisible users
	testConcurrentWrites(t, s, randomTalk)
}

// advanceUntil moves the watermark in small steps.
func advanceUntil(t *testing.T, f *feed, stop chan struct{}) {
	for after := lastseen.Instant(0); after < maxPlayed; after += 5 {
		select {
		case <-stop:
			return
		default:
		}
		advance := &store.ChangesAdvance{Namespace: kit.Namespace, Thresholds: Normal, Now: f.start + after}
		f.s.AdvanceChanges(context.Background(), []*store.ChangesAdvance{advance})
		if advance.Err != nil || advance.Begun {
			t.Errorf("%+v", advance)
		}
	}
}

// readUntil reads on, now and then from a new snapshot.
func readUntil(t *testing.T, f *feed, stop chan struct{}) *view {
	for {
		v, err := newView(f.s)
		for range 10 {
			if err == nil {
				err = v.readOn(f.s)
			}
		}
		if err != nil {
			t.Error(err)
			return v
		}
		select {
		case <-stop:
			return v
		default:
		}
	}
}

// view is what a reader of the namespace ns knows.
type view struct {
	users     map[string]store.Published
	positions []store.Position
}

func newView(s store.Store) (*view, error) {
	names := raceNames()
	snapshot, err := s.SnapshotChanges(context.Background(), kit.Namespace, names)
	if err != nil {
		return nil, err
	}
	v := &view{users: map[string]store.Published{}, positions: snapshot.Positions}
	for i, user := range names {
		v.users[user] = snapshot.Users[i]
	}
	return v, nil
}

// readOn reads to the end.
func (v *view) readOn(s store.Store) error {
	for {
		read := &store.ChangesRead{Namespace: kit.Namespace, After: v.positions, Limit: 7}
		s.ReadChanges(context.Background(), []*store.ChangesRead{read})
		if read.Err != nil || read.Reset {
			return fmt.Errorf("reset %t, %w", read.Reset, read.Err)
		}
		for _, c := range read.Changes {
			if err := v.apply(c); err != nil {
				return err
			}
		}
		if v.positions = read.Positions; !read.More {
			return nil
		}
	}
}

// apply takes over an entry, if it continues from what is known.
func (v *view) apply(c store.Change) error {
	was := v.users[c.User]
	if c.WasStatus != was.Status || c.WasLeft != was.Left || c.Was != was.Details {
		return fmt.Errorf("%+v does not continue from %+v", c, was)
	}
	v.users[c.User] = c.Published
	return nil
}

// RunFaulty compares changes feeds with a model while stores break.
func RunFaulty(t *testing.T, open func(testing.TB) kit.Breakable) {
	t.Helper()
	testChangesModel(t, open)
}

// breakages returns the actions that the store makes possible.
func (m *changesModel) breakages() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	if m.Restart != nil {
		actions["restart"] = m.restart
	}
	if m.Fault != nil {
		actions["fault"] = m.fault
	}
	if m.Pass != nil {
		actions["pass"] = m.pass
	}
	if m.Step != nil {
		actions["step"] = m.step
	}
	return actions
}

func (m *changesModel) restart(t *rapid.T) {
	m.Store = m.Restart()
	if !m.Lasting {
		m.endFeed()
		m.talk.endCalls()
	}
	if m.devices != nil {
		m.firstDevice(t)
	}
}

// pass lets time pass: the feed may end, and entries may be dropped.
func (m *changesModel) pass(t *rapid.T) {
	// No sum of these is ChangesKept in as many steps as a run has.
	d := rapid.SampledFrom([]time.Duration{time.Second, 61 * time.Second, 11 * time.Minute}).Draw(t, "passes")
	m.Pass(d)
	m.let(d)
}

// let notes that time passed.
func (m *changesModel) let(pass time.Duration) {
	m.passed += pass
	if m.recorded && m.passed-m.renewed > store.ChangesKept {
		m.endFeed()
	}
}

// step sets the clock, at times with a write before the next advance. Where the watermark is too far ahead then, the
// feed begins again; and a store may always drop entries whose age it no longer knows.
func (m *changesModel) step(t *rapid.T) {
	by := rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 20_000 * time.Hour}).Draw(t, "by")
	if rapid.Bool().Draw(t, "back") {
		by = -by
	}
	m.forgetHidden(t)
	end := m.positions(t)
	m.let(m.Step(by))
	m.relearn(t)
	for _, r := range m.readers {
		r.lossy = true
	}
	if rapid.Bool().Draw(t, "write first") {
		user := kit.DrawUser.Draw(t, "user")
		state := kit.Ping(t, m, user, m.drawAt(t))
		m.claims(user, devices.Claim{At: state.At})
		m.become(user, state)
	}
	clock := kit.Now(t, m)
	ahead := m.watermark.Sub(clock)
	if m.recorded {
		m.settle(t, clock, end, ahead > store.MaxAhead)
	}
}

// positions returns the end of the feed.
func (m *changesModel) positions(t *rapid.T) []store.Position {
	read := &store.ChangesRead{Namespace: kit.Namespace, Limit: 1}
	m.ReadChanges(context.Background(), []*store.ChangesRead{read})
	require.True(t, read.Err == nil || !m.recorded, "%v", read.Err)
	return read.Positions
}

// settle advances the feed to the store's clock, and finds out whether the feed began again.
func (m *changesModel) settle(t *rapid.T, clock lastseen.Instant, end []store.Position, begins bool) {
	watermark := m.advanceTo(t, clock+playAhead)
	read := &store.ChangesRead{Namespace: kit.Namespace, After: end, Limit: 1}
	m.ReadChanges(context.Background(), []*store.ChangesRead{read})
	require.NoError(t, read.Err)
	require.Equal(t, begins, read.Reset, "the watermark was %s, and the clock is %s", m.watermark, clock)
	if m.advanceModel(watermark); read.Reset {
		m.newFeed()
		m.watermark = watermark
	}
}

// fault takes over the state after a fault: which writes were lost is not known.
func (m *changesModel) fault(t *rapid.T) {
	m.Fault()
	m.forgetHidden(t)
	names := make([]string, modelUsers)
	for i := range names {
		names[i] = fmt.Sprint("u", i)
	}
	read := &store.ChangesRead{Namespace: kit.Namespace, Limit: 1}
	m.ReadChanges(context.Background(), []*store.ChangesRead{read})
	if errors.Is(read.Err, store.ErrNotRecorded) {
		m.endFeed()
	} else {
		require.NoError(t, read.Err)
		m.newFeed()
		m.advanceAll(t)
	}
	if m.devices != nil {
		names = append(names, kit.FirstUsers(m.Store)...)
	}
	for i, state := range kit.Lookup(t, m, names...) {
		m.states[names[i]] = state
		if m.devices != nil {
			m.know(names[i], devices.Of(t, m, names[i]))
		}
	}
	m.relearn(t)
	m.unrecorded = true // users who were grey may be unknown
	for _, r := range m.readers {
		r.lossy, r.inexact = true, true
	}
}
