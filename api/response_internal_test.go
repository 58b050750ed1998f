package api

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/web"
	"github.com/lastseen/lastseen/store"
)

// TestCallJSONOfOthers checks what a call shows of which the store has no valid JSON, and no device.
func TestCallJSONOfOthers(t *testing.T) {
	encoded, err := json.Marshal(session.ShowCall(lastseen.Call{
		ID: "c1", From: "alice", To: `"bob"`, State: lastseen.Ended, By: "bob", App: "not JSON", Over: kit.Now,
	}))
	require.NoError(t, err)
	text := string(encoded)
	require.Contains(t, text, `"to":"\"bob\""`)
	require.Contains(t, text, `"by":{"user":"bob","device":null}`)
	require.Contains(t, text, `"app":null`)
	require.Contains(t, text, `"ended_at":"2026-11-20T12:00:00.000Z"`)
}

// TestDotWords checks the times in titles at the ends of each unit.
func TestDotWords(t *testing.T) {
	t.Parallel()
	const minute, day = 60_000, 24 * 60 * 60_000
	for age, want := range map[int64]string{
		-5000: "just now", 0: "just now", minute - 1: "just now", minute: "1 minute ago",
		2*minute - 1: "1 minute ago", 2 * minute: "2 minutes ago", 60*minute - 1: "59 minutes ago",
		60 * minute: "1 hour ago", day - 1: "23 hours ago", day: "1 day ago", 30*day - 1: "29 days ago",
		30 * day: "1 month ago", 365*day - 1: "12 months ago", 365 * day: "1 year ago",
		9000 * 365 * day: "9000 years ago",
	} {
		require.Equal(t, want, web.Ago(age))
	}
}

// TestAppendJSON checks that our own encoding equals that of package json.
func TestAppendJSON(t *testing.T) {
	instant := rapid.Map(rapid.Int64Range(0, int64(lastseen.MaxInstant)),
		func(n int64) request.Timestamp { return request.Timestamp(n) })
	details := rapid.Custom(func(t *rapid.T) *userDetails {
		d := &userDetails{
			Availability:      rapid.SampledFrom([]lastseen.Availability{"", "away", "busy"}).Draw(t, "availability"),
			AvailabilityUntil: instant.Draw(t, "until"), Note: rapid.String().Draw(t, "note"),
			IdleSince: instant.Draw(t, "idle"), InCall: rapid.Bool().Draw(t, "in_call"),
		}
		if d.IdleSince != 0 {
			d.Activity = request.Idle
		}
		return d
	})
	user := rapid.Custom(func(t *rapid.T) presence {
		return presence{
			User: rapid.String().Draw(t, "user"), Status: rapid.SampledFrom(lastseen.Statuses()).Draw(t, "status"),
			LastSeen: instant.Draw(t, "last_seen"), Left: rapid.Bool().Draw(t, "left"),
			ValidUntil:  instant.Draw(t, "valid_until"),
			userDetails: rapid.OneOf(rapid.Just((*userDetails)(nil)), details).Draw(t, "details"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(1, lastseen.MaxDuration.Milliseconds())
		by := evaluated{AsOf: instant.Draw(t, "as_of"), GreenMs: ms.Draw(t, "green"), YellowMs: ms.Draw(t, "yellow")}
		users := presences{by, rapid.SliceOfN(user, 0, 3).Draw(t, "users")}
		for _, response := range []interface{ AppendJSON([]byte) []byte }{
			userResponse{
				presence: user.Draw(t, "one"), evaluated: by,
				PingAfterMs: rapid.Int64Range(0, 9).Draw(t, "after"),
			},
			lookupResponse{users, rapid.String().Draw(t, "hint")},
			listResponse{users, rapid.Ptr(rapid.String(), true).Draw(t, "cursor")},
		} {
			want, err := json.Marshal(response)
			require.NoError(t, err)
			require.Equal(t, string(want), string(response.AppendJSON(nil)))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	response := lookupResponse{presences: presences{
		view{kit.Now, lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}, kit.Now}.evaluated(),
		make([]presence, 100),
	}}
	for i := range response.Users {
		response.Users[i] = presence{
			User: "alice", Status: lastseen.Green, LastSeen: request.Timestamp(kit.Now),
			ValidUntil: request.Timestamp(kit.Now),
		}
	}
	b.Run("by hand", func(b *testing.B) {
		var buffer []byte
		for b.Loop() {
			buffer = response.AppendJSON(buffer[:0])
		}
	})
	b.Run("by package json", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(response); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestPublishedDetails checks what responses show of users in a changes feed. What has ended is shown until the feed
// says so. Otherwise that change would be sent although the one before looked the same.
func TestPublishedDetails(t *testing.T) {
	t.Parallel()
	thresholds := lastseen.Thresholds{Green: time.Minute, Yellow: 2 * time.Minute}
	details := store.Details{
		Availability: lastseen.AvailabilityState{Availability: lastseen.Busy, Until: kit.Now - 10},
		IdleSince:    kit.Now - 100, InCallUntil: kit.Now + 10,
	}
	state, shown := lastseen.State{At: kit.Now - 90_000}, userDetails{
		Availability: lastseen.Busy, AvailabilityUntil: request.Timestamp(kit.Now - 10),
		Activity: request.Idle, IdleSince: request.Timestamp(kit.Now - 100), InCall: true,
		inCallUntil: lastseen.MaxInstant,
	}
	of := func(watermark lastseen.Instant) presence {
		return published("alice", store.Publish(thresholds, state, details, watermark))
	}
	require.Equal(t, presence{
		User: "alice", Status: lastseen.Yellow, LastSeen: request.Timestamp(state.At), userDetails: &shown,
	}, of(kit.Now-11))
	shown.Availability, shown.AvailabilityUntil = "", 0
	require.Equal(t, &shown, of(kit.Now-10).userDetails)
	require.Nil(t, of(kit.Now+60_000).userDetails)
}

// usualSettings are those of most tests.
func usualSettings() Settings {
	return Settings{
		Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
		PingInterval: 30 * time.Second,
	}
}
