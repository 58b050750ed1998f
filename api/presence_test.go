package api

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
)

// TestAppendJSON: what is encoded by hand is what package json makes of it.
func TestAppendJSON(t *testing.T) {
	instant := rapid.Map(rapid.Int64Range(0, int64(lastseen.MaxInstant)),
		func(n int64) timestamp { return timestamp(n) })
	user := rapid.Custom(func(t *rapid.T) presence {
		return presence{
			User: rapid.String().Draw(t, "user"), Status: rapid.SampledFrom(lastseen.Statuses()).Draw(t, "status"),
			LastSeen: instant.Draw(t, "last_seen"), Left: rapid.Bool().Draw(t, "left"),
			ValidUntil: instant.Draw(t, "valid_until"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(1, lastseen.MaxDuration.Milliseconds())
		by := evaluated{AsOf: instant.Draw(t, "as_of"), GreenMs: ms.Draw(t, "green"), YellowMs: ms.Draw(t, "yellow")}
		users := presences{by, rapid.SliceOfN(user, 0, 3).Draw(t, "users")}
		for _, answer := range []appender{
			userResponse{
				presence: user.Draw(t, "one"), evaluated: by,
				PingAfterMs: rapid.Int64Range(0, 9).Draw(t, "after"),
			},
			lookupResponse{users, rapid.String().Draw(t, "hint")},
			listResponse{users, rapid.Ptr(rapid.String(), true).Draw(t, "cursor")},
		} {
			want, err := json.Marshal(answer)
			require.NoError(t, err)
			require.Equal(t, string(want), string(answer.appendJSON(nil)))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	answer := lookupResponse{presences: presences{
		view{noon, lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}}.evaluated(), make([]presence, 100),
	}}
	for i := range answer.Users {
		answer.Users[i] = presence{
			User: "alice", Status: lastseen.Green, LastSeen: timestamp(noon),
			ValidUntil: timestamp(noon),
		}
	}
	b.Run("by hand", func(b *testing.B) {
		var buffer []byte
		for b.Loop() {
			buffer = answer.appendJSON(buffer[:0])
		}
	})
	b.Run("by package json", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(answer); err != nil {
				b.Fatal(err)
			}
		}
	})
}
