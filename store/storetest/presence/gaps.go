package presence

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// gapTries is how often a test does what is observed at random, once in 16 times: all of them are missed in one test
// run of a hundred million.
const gapTries = 300

// Gaps checks that a store calls its function gap for a sample of pings, with the time since the user's previous ping.
// The function open returns an empty store that uses it.
func Gaps(t *testing.T, open func(gap func(namespace string, gap time.Duration)) store.Store) {
	t.Helper()
	ctx, observed := context.Background(), map[time.Duration]int{}
	s := open(func(namespace string, gap time.Duration) {
		require.Equal(t, "chat", namespace)
		observed[gap]++
	})
	now, err := s.Now(ctx)
	require.NoError(t, err)
	at := func(seconds int) lastseen.Instant { return now - 3_600_000 + lastseen.Instant(1000*seconds) }
	record := func(write func(context.Context, string, []store.PresenceEvent) ([]lastseen.State, error), seconds int,
		users ...string,
	) {
		var batch []store.PresenceEvent
		for _, user := range users {
			batch = append(batch, store.PresenceEvent{User: user, At: at(seconds)})
		}
		_, err := write(ctx, "chat", batch)
		require.NoError(t, err)
	}

	for i := range gapTries {
		record(s.Ping, 1, fmt.Sprintf("new%d", i))
		record(s.Leave, 10*i, "leaver")
		record(s.Ping, 10*i+1, "leaver") // left before
		record(s.Leave, 10*i+1, "leaver")
	}
	record(s.Ping, 100, "late")
	for i := range gapTries {
		record(s.Ping, 99, "late")  // changes nothing
		record(s.Ping, 100, "late") // the same time again
		record(s.Leave, 100+i, "late, and left")
		record(s.Ping, 100, "late, and left")
	}
	require.Empty(t, observed)

	for i := range gapTries {
		record(s.Ping, 7*i, "regular")
	}
	require.Len(t, observed, 1)
	require.NotZero(t, observed[7*time.Second])
	require.Less(t, observed[7*time.Second], gapTries/2, "a sample")

	clear(observed)
	for i := range gapTries {
		record(s.Ping, 11*i, "first", fmt.Sprintf("second%d", i))
	}
	require.Len(t, observed, 1, "the first user of a batch")
	require.NotZero(t, observed[11*time.Second])
}
