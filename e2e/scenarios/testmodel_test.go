package scenarios

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// This file has a model of presence that is just a map, with which tests compare every status, count and list.

const (
	dayGreen  = 60_000 // milliseconds, as the defaults
	dayYellow = 300_000
	dayLength = 24 * 3600_000
	dayPath   = "/v1/namespaces/day"
	walkLimit = 70 // users of a page
)

// event is one ping or leave, at a time in milliseconds since the day began.
type event struct {
	user  int
	at    int64
	leave bool
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
