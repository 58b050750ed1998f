package webhooks

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/feed"
)

// parsed is an event as a receiver reads it.
type parsed struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"`
	Data      struct {
		Namespace string           `json:"namespace"`
		Users     []map[string]any `json:"users"`
		More      *bool            `json:"more"`
	} `json:"data"`
}

func parse(t testing.TB, body []byte) (p parsed) {
	t.Helper()
	require.NoError(t, json.Unmarshal(body, &p), "%s", body)
	return p
}

// testEncoder encodes a user as an ID and a status; in the product, package api does that.
func testEncoder() encoder {
	return encoder{namespace: "chat", at: 1_795_000_000_000, append: appendUser}
}

func appendUser(b []byte, u feed.Update) []byte {
	return fmt.Appendf(b, `"user":%q,"status":%q`, u.User, u.Status)
}

// TestEvents: each event is what the guide says.
func TestEvents(t *testing.T) {
	t.Parallel()
	e := testEncoder()
	const head = `{"type":"presence.%s","timestamp":"2026-11-18T11:06:40.000Z","data":{"namespace":"chat"`
	bob := update("bob", lastseen.Green, lastseen.Grey)
	for want, got := range map[string][]event{
		fmt.Sprintf(head, "reset") + `}}`: {e.reset()},
		fmt.Sprintf(head, "changed") + `,"users":[{"user":"bob","status":"grey","previous":"green"}]}}`: e.changed(
			[]change{{Update: bob}}),
		fmt.Sprintf(head, "snapshot") + `,"users":[{"user":"bob","status":"grey"}],"more":true}}`: e.snapshot(
			[]feed.Update{bob}, true),
		fmt.Sprintf(head, "snapshot") + `,"users":[],"more":false}}`: e.snapshot(nil, false),
	} {
		require.Len(t, got, 1)
		require.Equal(t, want, string(got[0].Body))
		require.Regexp(t, `^msg_[a-z2-7]{32}$`, got[0].ID)
	}
	one, two := e.reset(), e.reset()
	require.NotEqual(t, one.ID, two.ID)
}

// TestEventsAreBounded: what does not fit is in the next event, every user once and in order, and only the last part of
// a snapshot is the last.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ users, length, events int }{
		"users": {450, 10, 3}, "exactly": {400, 10, 2}, "bytes": {150, 1000, 3}, "none": {0, 0, 1},
		"too large for any": {2, maxBody, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var users []feed.Update
			for k := range c.users {
				id := fmt.Sprintf("%05d", k) + strings.Repeat("x", c.length)
				users = append(users, update(id, lastseen.Grey, lastseen.Green))
			}
			events := testEncoder().snapshot(users, false)
			require.Len(t, events, c.events)
			seen := 0
			for k, e := range events {
				p := parse(t, e.Body)
				require.LessOrEqual(t, len(p.Data.Users), maxUsers)
				require.Len(t, p.Data.Users, e.Users)
				require.True(t, len(e.Body) <= maxBody || len(p.Data.Users) == 1, len(e.Body))
				require.Equal(t, k < len(events)-1, *p.Data.More)
				for _, u := range p.Data.Users {
					require.Equal(t, users[seen].User, u["user"])
					seen++
				}
			}
			require.Equal(t, c.users, seen)
		})
	}
}

// TestHalves: an event that is too large for the receiver becomes two with the same users, and other IDs.
func TestHalves(t *testing.T) {
	t.Parallel()
	e := testEncoder()
	whole := e.snapshot([]feed.Update{{User: "a"}, {User: "b"}, {User: "c"}}, false)[0]
	halves, ok := e.halves(whole)
	require.True(t, ok)
	first, second := parse(t, halves[0].Body), parse(t, halves[1].Body)
	require.Len(t, first.Data.Users, 1)
	require.Len(t, second.Data.Users, 2)
	require.True(t, *first.Data.More)
	require.False(t, *second.Data.More)
	require.Len(t, map[string]bool{whole.ID: true, halves[0].ID: true, halves[1].ID: true}, 3)
	_, ok = e.halves(halves[0])
	require.False(t, ok)
	_, ok = e.halves(e.reset())
	require.False(t, ok)
}
