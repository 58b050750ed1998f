package memstore

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestSizeOfAvailability: docs/decisions/availability.md names the memory of a user with an availability.
func TestSizeOfAvailability(t *testing.T) {
	testenv.SkipWithRace(t, "memory is not measured")
	const n = 50_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("u%07d", i)
	}
	x := index{}
	chat := x.add("chat")
	grows := func(what string, most int64, change func(i int)) {
		t.Helper()
		before := int64(kit.HeapInUse())
		for i := range names {
			change(i)
		}
		size := (int64(kit.HeapInUse()) - before) / n
		t.Logf("%d bytes more for a user %s", size, what)
		require.LessOrEqual(t, size, most, what)
		require.Positive(t, size, what)
	}
	grows("without anything said", 150, func(i int) { x.setIn(chat, names[i], lastseen.State{At: base}) })
	busy := lastseen.AvailabilityState{Availability: lastseen.Busy}
	grows("who says Busy", 300, func(i int) { x.setAvailability("chat", names[i], busy) })
	grows("for a note of 20 characters and an end", 150, func(i int) {
		x.setAvailability("chat", names[i], lastseen.AvailabilityState{
			Availability: lastseen.Busy, Note: fmt.Sprintf("in room %-12d", i), Until: base + lastseen.Instant(i),
		})
	})
	grows("who was or is invisible", 200, func(i int) {
		x.hide("chat", names[i], Hidden{HiddenTime: lastseen.HiddenTime{End: base, Ended: true}})
	})
	for _, name := range names {
		x.forget("chat", name)
	}
	require.Equal(t, namespaceBytes("chat"), x.live)
	require.Empty(t, chat.users.availability.details)
	require.True(t, chat.users.availability.empty())
	runtime.KeepAlive(&x)
}
