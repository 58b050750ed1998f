//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// trail is a client that watches users, or everyone, and remembers each presence that it was sent.
type trail struct {
	*socket
	name string
}

// observation is a presence as a watcher was sent it.
type observation struct {
	presence
	at       lastseen.Instant // last seen
	asOf     lastseen.Instant
	received time.Time
}

// mostWatched is the number of users that a hello can watch here.
const mostWatched = 100

// watch follows users over a WebSocket that holds no user; without users, everyone.
func watch(t testing.TB, s *server, users ...string) *trail {
	t.Helper()
	require.LessOrEqual(t, len(users), mostWatched)
	hello := object{}
	if users != nil {
		hello = object{"watch": object{"users": users}}
	}
	tr := &trail{connect(t, socketOptions{url: s.url, hello: hello}), "watcher of " + s.url}
	if users == nil {
		answer := tr.ask(t, "watch", object{"everyone": true})
		require.NotEqual(t, "problem", answer.name, "%s", answer.data)
	}
	return tr
}

// observations returns what the watcher was sent of a user, also in the first snapshot and in those of resets. Repeated
// presences count once.
func (tr *trail) observations(t testing.TB, user string) (all []observation) {
	t.Helper()
	for _, s := range tr.everything(t) {
		if s.User == user && (len(all) == 0 || s.Status != all[len(all)-1].Status || s.Left != all[len(all)-1].Left) {
			all = append(all, s)
		}
	}
	return all
}

// everything returns what the watcher was sent of all users.
func (tr *trail) everything(t testing.TB) (all []observation) {
	t.Helper()
	for _, p := range tr.welcome.Users {
		all = append(all, seen(p, "", time.Time{}))
	}
	for _, f := range tr.received() {
		var news struct {
			AsOf  string     `json:"as_of"`
			Users []presence `json:"users"`
		}
		if err := json.Unmarshal(f.data, &news); err != nil {
			require.NoError(t, err, "%s %s", f.name, f.data)
		}
		for _, p := range news.Users {
			all = append(all, seen(p, news.AsOf, f.received))
		}
	}
	return all
}

func seen(p presence, asOf string, received time.Time) observation {
	s := observation{presence: p, at: must(p.state()).At, received: received}
	if asOf != "" {
		s.asOf = must(lastseen.ParseTime(asOf))
	}
	return s
}

// await waits until the newest that the watcher was sent of a user is a status, and returns that.
func (tr *trail) await(t testing.TB, user string, status lastseen.Status) (found observation) {
	t.Helper()
	await(t, fmt.Sprintf("%s to show %s %s", tr.name, user, status), func() bool {
		require.True(t, tr.open(), "%s was closed: %v", tr.name, tr.why())
		all := tr.observations(t, user)
		if len(all) > 0 {
			found = all[len(all)-1]
		}
		return found.Status == status
	})
	return found
}

// course returns the statuses of a user one after the other, as in "green yellow grey". What follows a leave is
// "left" instead of grey; never seen is "unknown".
func (tr *trail) course(t testing.TB, user string) (text []string) {
	t.Helper()
	for _, s := range tr.observations(t, user) {
		step := string(s.Status)
		switch {
		case s.Left:
			step = "left"
		case s.LastSeen == nil:
			step = "unknown"
		}
		if len(text) == 0 || text[len(text)-1] != step {
			text = append(text, step)
		}
	}
	return text
}

// requireOnlyGreen checks that a user, who was never seen when the watcher began, was green ever since.
func (tr *trail) requireOnlyGreen(t testing.TB, user string) {
	t.Helper()
	course := tr.course(t, user)
	require.Equal(t, []string{"green"}, slices.DeleteFunc(course, func(step string) bool { return step == "unknown" }),
		"%s: %v", user, course)
}

// requireTurnsGrey checks that a user turned yellow and grey at the thresholds, without a leave.
func (tr *trail) requireTurnsGrey(t testing.TB, user string, thresholds lastseen.Thresholds) {
	t.Helper()
	tr.await(t, user, lastseen.Grey)
	all := tr.observations(t, user)
	require.GreaterOrEqual(t, len(all), 2)
	yellow, grey := all[len(all)-2], all[len(all)-1]
	require.Equal(t, lastseen.Yellow, yellow.Status, "%v", tr.course(t, user))
	require.False(t, grey.Left)
	require.GreaterOrEqual(t, yellow.asOf, yellow.at.Add(thresholds.Green))
	require.GreaterOrEqual(t, grey.asOf, grey.at.Add(thresholds.Yellow))
	require.Equal(t, yellow.at, grey.at)
}

// requireLeft waits until a user is grey, who was never seen when the watcher began, came and left.
func (tr *trail) requireLeft(t testing.TB, user string) observation {
	t.Helper()
	grey := tr.await(t, user, lastseen.Grey)
	require.Equal(t, []string{"unknown", "green", "left"}, tr.course(t, user))
	return grey
}

// presenceOf returns the presence of a user that a server shows.
func presenceOf(t testing.TB, s *server, user string) observation {
	t.Helper()
	found := decode[struct {
		presence
		AsOf string `json:"as_of"`
	}](t, s.request(t, http.MethodGet, userPath(user)))
	return seen(found.presence, found.AsOf, time.Now())
}
