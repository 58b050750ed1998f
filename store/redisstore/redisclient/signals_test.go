package redisclient

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// FuzzDecodeSignal: whatever is sent on the channel, the result is a signal that could have been sent, and encodes to
// the same message.
func FuzzDecodeSignal(f *testing.F) {
	f.Add("a k chat 5 alicedata")
	f.Add("a k chat 0 ")
	f.Add("a - - 0 x")
	f.Add("a k chat 05 alice")
	f.Fuzz(func(t *testing.T, message string) {
		sender, s, ok := decodeSignal(message)
		if !ok || s.Kind == signalCheck {
			return
		}
		require.True(t, isSignal(s))
		require.LessOrEqual(t, len(s.Data), store.MaxSignalData)
		again, decoded, ok := decodeSignal(string(encodeSignal(sender, s)))
		require.True(t, ok)
		require.Equal(t, sender, again)
		require.Equal(t, s, decoded)
	})
}
