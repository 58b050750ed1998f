package changes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

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
