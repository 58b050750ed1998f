package filestore

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestSizes measures what a user takes in memory and in a compacted file, with IDs of 32 bytes. The sizing guide in
// docs/capacity.md has the numbers. It is not parallel, because it reads the heap.
func TestSizes(t *testing.T) {
	testenv.SkipWithRace(t, "memory is not measured")
	const note = "in a meeting until 3" // of 20 characters
	busy := func(note string, until lastseen.Instant) func(*Store, string) {
		return saySize(t, lastseen.AvailabilityState{Availability: lastseen.Busy, Note: note, Until: until})
	}
	sizeOfUsers(t, "a user", 250, 100, nil)
	sizeOfUsers(t, "busy", 300, 80, busy("", 0))
	sizeOfUsers(t, "busy, with a note", 350, 100, busy(note, 0))
	sizeOfUsers(t, "busy, with a note and an end", 500, 120, busy(note, base.Add(time.Hour)))
	sizeOfUsers(t, "invisible", 300, 100, saySize(t, lastseen.AvailabilityState{Availability: lastseen.Invisible}))
	sizeOfUsers(t, "one device", 300, 150, devicesSize(t, 1))
	sizeOfUsers(t, "two devices", 500, 250, devicesSize(t, 2))
	ids := contactIDs(50)
	sizeOfUsers(t, "50 contacts", 3000, 2500, func(s *Store, user string) {
		require.NoError(t, undurably(s).SetContacts(context.Background(), "chat", user, ids))
	})
}

// sizeOfUsers logs what a change adds to users that have pinged, or without a change what users take, and checks that
// this is not more than the given numbers of bytes.
func sizeOfUsers(t *testing.T, what string, mostMemory, mostDisk int64, change func(*Store, string)) {
	t.Helper()
	const n = 20_000
	ids := contactIDs(n)
	s := open(t, Options{Path: newPath(t), Sync: time.Hour})
	size := func() (memory, disk int64) {
		require.NoError(t, s.writer.flushPending())
		require.NoError(t, compactNow(s))
		info, err := os.Stat(s.Path())
		require.NoError(t, err)
		return int64(kit.HeapInUse()), info.Size()
	}
	ping := func(s *Store, user string) {
		kit.Ping(t, s, user, base)
	}
	if change == nil {
		change = ping
	} else {
		for _, user := range ids {
			ping(s, user)
		}
	}
	memory, disk := size()
	for _, user := range ids {
		change(s, user)
	}
	memoryAfter, diskAfter := size()
	runtime.KeepAlive(ids) // or they would be collected between the two sizes
	memory, disk = (memoryAfter-memory)/n, (diskAfter-disk)/n
	t.Logf("%s: %d bytes of memory, %d of the file", what, memory, disk)
	require.Positive(t, memory, what)
	require.Positive(t, disk, what)
	require.LessOrEqual(t, memory, mostMemory, what)
	require.LessOrEqual(t, disk, mostDisk, what)
}

func saySize(t *testing.T, availability lastseen.AvailabilityState) func(*Store, string) {
	return func(s *Store, user string) { setAvailabilityLater(t, s, user, availability) }
}

func devicesSize(t *testing.T, n int) func(*Store, string) {
	return func(s *Store, user string) {
		for i := range n {
			_, err := s.RecordDevices(context.Background(), "chat", 150*time.Second, []store.DeviceEvent{{
				User: user, ID: fmt.Sprint("01234567-89ab-cdef-0123-456789abcde", i), Kind: lastseen.Web, At: base,
			}})
			require.NoError(t, err)
		}
	}
}

// TestLiveOfAvailability: the size of a compacted file is about what decides about compactions.
func TestLiveOfAvailability(t *testing.T) {
	t.Parallel()
	m := &kit.Machine{}
	s := open(t, optionsOf(t, m))
	for i := range 1000 {
		user := fmt.Sprintf("user-%03d", i%500)
		away := lastseen.AvailabilityState{Availability: lastseen.Away, Note: fmt.Sprint("note ", i)}
		setAvailabilityLater(t, s, user, away)
		if i%3 == 0 {
			availability := lastseen.AvailabilityState{Availability: lastseen.Invisible, Until: base.Add(time.Hour)}
			setAvailabilityLater(t, s, user, availability)
		}
	}
	require.NoError(t, compactNow(s))
	info, err := os.Stat(s.Path())
	require.NoError(t, err)
	require.InEpsilon(t, info.Size(), s.Stats().Live, 0.1)
	live := s.Stats().Live
	require.NoError(t, s.Close())
	require.Equal(t, live, open(t, Options{Path: s.Path()}).Stats().Live)
}

// setAvailabilityLater is SetAvailability without waiting for the flush.
func setAvailabilityLater(t testing.TB, s *Store, user string, availability lastseen.AvailabilityState) {
	t.Helper()
	_, err := undurably(s).SetAvailability(t.Context(), "chat", user, availability, base)
	require.NoError(t, err)
}
