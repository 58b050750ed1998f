package webhooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// update returns the change of a user from one status to another.
func update(user string, was, is lastseen.Status) feed.Update {
	u := feed.Update{User: user, Recorded: 1}
	u.Status, u.At, u.Was.Status = is, 1, was
	return u
}

// TestHeld: only what still holds after its time is reported, with what was reported before.
func TestHeld(t *testing.T) {
	t.Parallel()
	const green, yellow, grey = lastseen.Green, lastseen.Yellow, lastseen.Grey
	type step struct {
		at      int // seconds
		was, is lastseen.Status
	}
	for name, c := range map[string]struct {
		report Report
		steps  []step
		due    []string // "seconds previous status"
	}{
		"comes":            {Online, []step{{0, grey, green}}, []string{"10s grey green"}},
		"goes":             {Online, []step{{0, yellow, grey}}, []string{"10s yellow grey"}},
		"turns yellow":     {Online, []step{{0, green, yellow}}, nil},
		"every change":     {Status, []step{{0, green, yellow}}, []string{"10s green yellow"}},
		"flaps":            {Online, []step{{0, grey, green}, {9, green, grey}}, nil},
		"flaps otherwise":  {Status, []step{{0, green, yellow}, {9, yellow, green}}, nil},
		"returns":          {Online, []step{{0, grey, green}, {5, green, grey}, {6, grey, green}}, []string{"16s grey green"}},
		"moves on":         {Status, []step{{0, green, yellow}, {5, yellow, grey}}, []string{"15s green grey"}},
		"is online anyway": {Online, []step{{0, grey, green}, {5, green, yellow}}, []string{"10s grey yellow"}},
		"comes and goes":   {Online, []step{{0, grey, green}, {20, green, grey}}, []string{"10s grey green", "30s green grey"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Unix(1_795_000_000, 0)
			var h held
			var due []string
			for at := range 60 {
				now := start.Add(time.Duration(at) * time.Second)
				for _, s := range c.steps {
					if s.at == at {
						h.add(update("alice", s.was, s.is), c.report, now, nil)
					}
				}
				for _, r := range h.take(now.Add(-10*time.Second), 100) {
					due = append(due, now.Sub(start).String()+" "+string(r.Was.Status)+" "+string(r.Status))
				}
			}
			require.Equal(t, c.due, due)
			require.Zero(t, h.len())
			require.Empty(t, h.users)
		})
	}
}

// TestHeldInOrder: changes are taken in the order in which they are due, and at most as many as asked for.
func TestHeldInOrder(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_795_000_000, 0)
	var h held
	for _, user := range []string{"c", "a", "b"} {
		h.add(update(user, lastseen.Grey, lastseen.Green), Online, now, nil)
	}
	var users []string
	for _, limit := range []int{2, 2} {
		for _, c := range h.take(now, limit) {
			users = append(users, c.User)
		}
	}
	require.Equal(t, []string{"c", "a", "b"}, users)
}

// TestForgottenUsers: a receiver learns of a user who was deleted, whatever it knows: who was green and left before may
// be published as grey before the deletion.
func TestForgottenUsers(t *testing.T) {
	t.Parallel()
	forgotten := store.Published{Status: lastseen.Grey}
	for _, report := range []Report{Status, Online} {
		require.True(t, report.differs(forgotten, forgotten))
		require.True(t, report.differs(store.Published{Status: lastseen.Yellow}, forgotten))
	}
	u := update("alice", lastseen.Grey, lastseen.Grey)
	u.At = 0
	body := testEncoder().changed([]change{{Update: u}})[0].Body
	require.NotContains(t, string(body), "previous")
	green := store.Published{State: lastseen.State{At: 7}, Status: lastseen.Green}
	require.True(t, Online.differs(store.Published{}, green), "what was before is not known")
}

// TestReportStatus: details of a user are a change of their own.
func TestReportStatus(t *testing.T) {
	t.Parallel()
	green := store.Published{State: lastseen.State{At: 7}, Status: lastseen.Green}
	later, idle := green, green
	later.At, idle.IdleSince = 8, 5
	require.False(t, Status.differs(green, later), "only the time differs")
	require.True(t, Status.differs(green, idle))
	require.False(t, Online.differs(green, idle))
}
