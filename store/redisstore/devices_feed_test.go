package redisstore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestFeedOfDevices: what devices change is in the feed, also when a known device pings again, and several times within
// a millisecond.
func TestFeedOfDevices(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		r := newReader(t, f.s, "alice", "bob", "carol")
		record(t, f.s, onDevice("alice", "tab", f.w-hour+1000), onDevice("alice", "phone", f.w-hour+1000))
		record(t, f.s, onDevice("alice", "tab", f.w-hour+1001), onDevice("carol", "tab", f.w-hour+1001))
		require.Equal(t, 2, f.sweep(f.w+2000).Decays)
		record(t, f.s, onDevice("alice", "tab", f.w-hour+1002))
		r.requireTruth()
		green, yellow, grey := lastseen.Green, lastseen.Yellow, lastseen.Grey
		require.Equal(t, []lastseen.Status{green, yellow}, r.of("alice"), "it was heard, but not lately")
		at := f.w + 1000
		record(t, f.s, onDevice("carol", "tab", at))
		r.requireTruth()
		require.Equal(t, []lastseen.Status{green, yellow, green}, r.of("carol"))
		record(t, f.s, onDevice("alice", "tab", at))
		record(t, f.s, onDevice("alice", "phone", at))
		record(t, f.s, byeOnDevice("alice", "tab", at))
		require.Equal(t, lastseen.State{At: at, Left: true}, record(t, f.s, byeOnDevice("alice", "phone", at)))
		require.Equal(t, lastseen.State{At: at}, record(t, f.s, onDevice("alice", "new", at)))
		require.Equal(t, lastseen.State{At: at, Left: true}, record(t, f.s, byeOnDevice("alice", "new", at)))
		r.requireTruth()
		require.Equal(t, []lastseen.Status{green, yellow, green, grey, green, grey}, r.of("alice"))

		record(t, f.s, onDevice("bob", "tab", at), byeOnDevice("bob", "tab", at), onDevice("bob", "phone", at))
		_, err := f.s.Leave(context.Background(), "chat", sightingsAt(at+1, "bob"))
		require.NoError(t, err)
		require.NoError(t, f.s.Forget(context.Background(), "chat", "bob"))
		r.requireTruth()
		require.Equal(t, []lastseen.Status{green, grey, grey}, r.of("bob"), "a call appends at most one entry for a user")
		require.Zero(t, r.resets)
	})
}
