package filestore

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// heap returns the memory in use. Tests that call it are not parallel.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSizeOfPeople: docs/decisions/people.md names the memory of a user who says something.
func TestSizeOfPeople(t *testing.T) {
	const n = 50_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("u%07d", i)
	}
	x := index{}
	chat := x.add("chat")
	grows := func(what string, most int64, change func(i int)) {
		t.Helper()
		before := heap()
		for i := range names {
			change(i)
		}
		size := (heap() - before) / n
		t.Logf("%d bytes more for a user %s", size, what)
		require.LessOrEqual(t, size, most, what)
		require.Positive(t, size, what)
	}
	grows("without anything said", 150, func(i int) { x.setIn(chat, names[i], lastseen.State{At: base}) })
	grows("who says Busy", 300, func(i int) { x.say("chat", names[i], lastseen.Said{Availability: lastseen.Busy}) })
	grows("for a note of 20 characters and an end", 150, func(i int) {
		x.say("chat", names[i], lastseen.Said{
			Availability: lastseen.Busy, Note: fmt.Sprintf("in room %-12d", i), Until: base + lastseen.Instant(i),
		})
	})
	grows("who was or is invisible", 200, func(i int) {
		x.hide("chat", names[i], hidden{HiddenTime: lastseen.HiddenTime{End: base, Ended: true}})
	})
	for _, name := range names {
		x.forget("chat", name)
	}
	require.Equal(t, namespaceBytes("chat"), x.live)
	require.Empty(t, chat.users.people.details)
	require.True(t, chat.users.people.empty())
	runtime.KeepAlive(&x)
}

// TestLiveOfPeople: the size of a compacted file is about what is expected of it, which decides about compactions.
func TestLiveOfPeople(t *testing.T) {
	t.Parallel()
	m := &machine{}
	s := open(t, m.options(t))
	for i := range 1000 {
		user := fmt.Sprintf("user-%03d", i%500)
		setAvailabilityLater(t, s, user, lastseen.Said{Availability: lastseen.Away, Note: fmt.Sprint("note ", i)})
		if i%3 == 0 {
			said := lastseen.Said{Availability: lastseen.Invisible, Until: base.Add(time.Hour)}
			setAvailabilityLater(t, s, user, said)
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
func setAvailabilityLater(t testing.TB, s *Store, user string, said lastseen.Said) {
	t.Helper()
	s.writer.log.need(version3)
	a := &saying{userKey: userKey{"chat", user}, said: said, at: base, now: s.readClock, s: s}
	_, err := s.writer.apply(t.Context(), write{op: a})
	require.NoError(t, err)
	require.NoError(t, a.err)
}
