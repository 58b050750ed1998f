package flows

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// This file replays a day of 100,000 users over HTTP. Ten times during it, it compares every status with a model that
// is just a map; at four of them, also every count and list.

const (
	dayUsers   = 100_000
	dayChecks  = 10
	dayGreen   = 60_000 // milliseconds, as the defaults
	dayYellow  = 300_000
	heartbeat  = 30_000
	dayLength  = 24 * 3600_000
	dayBatch   = 20_000 // events of one request
	dayPath    = "/v1/namespaces/day"
	walkLimit  = 1000
	lookupSize = 1000
)

// event is one ping or leave. It is asserted for at, and arrives at arrives: a little later or, when
// a phone was offline, much later.
type event struct {
	user    int
	at      int64 // milliseconds since the day began
	arrives int64
	leave   bool
}

// makeDay returns a day's events in the order in which they arrive.
func makeDay(random *rand.Rand) []event {
	var events []event
	for user := range dayUsers {
		if random.IntN(20) == 0 {
			continue // not today
		}
		for range 1 + random.IntN(2) {
			events = append(events, makeSession(random, user)...)
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.arrives, b.arrives) })
	return events
}

// makeSession returns one user's session: heartbeats until a goodbye or, often, a lost connection.
func makeSession(random *rand.Rand, user int) []event {
	var events []event
	at := random.Int64N(dayLength)
	late := random.IntN(50) == 0 // everything arrives up to an hour late
	add := func(leave bool) {
		delay := random.Int64N(60_000) // shuffled within a minute
		if late {
			delay += random.Int64N(3600_000)
		}
		events = append(events, event{user, at, at + delay, leave})
	}
	for range 1 + random.IntN(8) {
		add(false)
		at += heartbeat*8/10 + random.Int64N(heartbeat*2/10)
	}
	if random.IntN(2) == 0 {
		at -= random.Int64N(heartbeat / 2)
		add(true)
	}
	return events
}

// dayState is the model's whole knowledge of a user.
type dayState struct {
	at   int64
	left bool
}

func (s dayState) status(asOf int64) string {
	age := max(0, asOf-s.at)
	switch {
	case s.left:
		return "grey"
	case age < dayGreen:
		return "green"
	case age < dayYellow:
		return "yellow"
	default:
		return "grey"
	}
}

// day is the model beside the service.
type day struct {
	t      *testing.T
	s      *testserver.Server
	begin  time.Time
	states map[int]dayState
}

func userName(user int) string { return fmt.Sprintf("user-%05d", user) }

func (d *day) when(ms int64) string {
	return d.begin.Add(time.Duration(ms) * time.Millisecond).Format("2006-01-02T15:04:05.000Z07:00")
}

// apply is the one rule, written down once more: the later time wins, and a leave wins a tie.
func (d *day) apply(e event) {
	old, known := d.states[e.user]
	if !known || e.at > old.at || e.at == old.at && e.leave {
		d.states[e.user] = dayState{e.at, e.leave}
	}
}

func TestADay(t *testing.T) {
	testenv.RequireFull(t)
	testenv.SkipWithRace(t, "a day of 100,000 users takes too long")
	events := makeDay(rand.New(rand.NewPCG(2026, 11)))
	t.Logf("%d events of %d users", len(events), dayUsers)
	testserver.EachStore(t, func(t *testing.T, args []string) {
		t.Parallel()
		d := &day{
			t: t, s: testserver.Start(t, args...), states: map[int]dayState{},
			begin: time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC),
		}
		for check := range dayChecks {
			some := events[len(events)*check/dayChecks : len(events)*(check+1)/dayChecks]
			for batch := range slices.Chunk(some, dayBatch) {
				d.replay(batch)
			}
			asOf := some[len(some)-1].arrives
			d.compareLookups(asOf)
			if check%3 == 0 { // which includes the last
				d.compareLists(asOf, []string{"newest", "oldest"}[check/3%2])
			}
		}
	})
}

// replay sends a batch of events, all pings before all leaves.
func (d *day) replay(batch []event) {
	var lines [2]bytes.Buffer
	var counts [2]int
	for _, e := range batch {
		d.apply(e)
		kind := 0
		if e.leave {
			kind = 1
		}
		counts[kind]++
		fmt.Fprintf(&lines[kind], `{"user":%q,"at":%q}`+"\n", userName(e.user), d.when(e.at))
	}
	for kind, path := range []string{"/pings", "/leaves"} {
		response, err := http.Post(d.s.URL+dayPath+path, "application/x-ndjson", &lines[kind])
		require.NoError(d.t, err)
		var answer struct{ Recorded int }
		require.NoError(d.t, json.NewDecoder(response.Body).Decode(&answer))
		require.NoError(d.t, response.Body.Close())
		require.Equal(d.t, counts[kind], answer.Recorded)
	}
}

// dayPresence is a user as the service answers.
type dayPresence struct {
	User     string  `json:"user"`
	Status   string  `json:"status"`
	LastSeen *string `json:"last_seen"`
	Left     bool    `json:"left"`
}

func (d *day) presence(user int, asOf int64) dayPresence {
	state, known := d.states[user]
	if !known {
		return dayPresence{User: userName(user), Status: "grey"}
	}
	at := d.when(state.at)
	return dayPresence{userName(user), state.status(asOf), &at, state.left}
}

func (d *day) compareLists(asOf int64, order string) {
	counts := d.s.Get(d.t, dayPath+"/counts?as_of="+url.QueryEscape(d.when(asOf)))
	all := d.expected(asOf)
	for _, status := range []string{"total", "green", "yellow", "grey"} {
		want := slices.DeleteFunc(slices.Clone(all), func(p dayPresence) bool {
			return status != "total" && p.Status != status
		})
		require.EqualValues(d.t, len(want), counts[status], status)
		if order == "oldest" {
			slices.Reverse(want)
		}
		require.Equal(d.t, want, d.walk(asOf, status, order), "%s, %s first", status, order)
	}
}

func (d *day) compareLookups(asOf int64) {
	for first := 0; first < dayUsers; first += lookupSize {
		names := make([]string, lookupSize)
		want := make([]dayPresence, lookupSize)
		for i := range names {
			names[i], want[i] = userName(first+i), d.presence(first+i, asOf)
		}
		body, err := json.Marshal(map[string]any{"users": names})
		require.NoError(d.t, err)
		response, err := http.Post(d.s.URL+dayPath+"/lookup?as_of="+url.QueryEscape(d.when(asOf)), "application/json",
			bytes.NewReader(body))
		require.NoError(d.t, err)
		require.Equal(d.t, want, d.users(response).Users)
	}
}

// page is an answer about several users.
type page struct {
	Users      []dayPresence `json:"users"`
	NextCursor *string       `json:"next_cursor"`
}

func (d *day) users(response *http.Response) page {
	defer response.Body.Close()
	require.Equal(d.t, http.StatusOK, response.StatusCode)
	var p page
	require.NoError(d.t, json.NewDecoder(bufio.NewReader(response.Body)).Decode(&p))
	return p
}

// expected lists the model's users seen by an instant, newest first: within a millisecond those who left, by ID, and
// then those present, by ID downwards.
func (d *day) expected(asOf int64) []dayPresence {
	type seen struct {
		user int
		dayState
	}
	var found []seen
	for user, state := range d.states {
		if state.at <= asOf {
			found = append(found, seen{user, state})
		}
	}
	slices.SortFunc(found, func(x, y seen) int {
		switch {
		case x.at != y.at:
			return cmp.Compare(y.at, x.at)
		case x.left != y.left && x.left:
			return -1
		case x.left != y.left:
			return +1
		case x.left:
			return strings.Compare(userName(x.user), userName(y.user))
		default:
			return strings.Compare(userName(y.user), userName(x.user))
		}
	})
	presences := make([]dayPresence, len(found))
	for i, s := range found {
		presences[i] = d.presence(s.user, asOf)
	}
	return presences
}

// walk lists page by page to the end.
func (d *day) walk(asOf int64, status, order string) []dayPresence {
	query := url.Values{"as_of": {d.when(asOf)}, "order": {order}, "limit": {fmt.Sprint(walkLimit)}}
	if status != "total" {
		query.Set("status", status)
	}
	all := []dayPresence{}
	for {
		response, err := http.Get(d.s.URL + dayPath + "/users?" + query.Encode())
		require.NoError(d.t, err)
		p := d.users(response)
		all = append(all, p.Users...)
		if p.NextCursor == nil {
			return all
		}
		query.Set("cursor", *p.NextCursor)
	}
}
