//go:build faults

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestView feeds a view with true and false events: a checker that misses a lost change proves nothing.
func TestView(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	at := func(age time.Duration) string { return now.Add(-age).Format("2006-01-02T15:04:05.000Z") }
	user := func(status string, age time.Duration, left bool) fedPresence {
		seen := at(age)
		return fedPresence{presence{"a", lastseen.Status(status), &seen, left}, nil}
	}
	n := 0
	event := func(name string, age time.Duration, users ...fedPresence) feedEvent {
		n++
		return feedEvent{name, fmt.Sprint(n), now, feedData{at(age), users, fmt.Sprint(n), false}}
	}
	changes := func(users ...fedPresence) feedEvent { return event("changes", 2*time.Second, users...) }
	const pinged = 20 * time.Second // when a was acknowledged
	green := event("changes", 15*time.Second, user("green", pinged, false))
	yellow := event("changes", 2*time.Second, user("yellow", pinged, false))
	part := event("changes", 2*time.Second, user("yellow", pinged, false))
	part.More, part.id = true, green.id
	until := "2006-01-02T15:04:05.000Z"
	for _, test := range []struct {
		name   string
		events []feedEvent // an unnamed one is a new connection
		right  bool
	}{
		{"both changes", []feedEvent{green, yellow}, true},
		{"the second alone", []feedEvent{yellow}, true},
		{"a transition later than as_of", []feedEvent{green, event("changes", 12*time.Second, yellow.Users[0])}, true},
		{"grey too early", []feedEvent{green, event("changes", 12*time.Second, user("grey", pinged, false))}, false},
		{"ticks", []feedEvent{green, event("tick", 15*time.Second), yellow, event("tick", time.Second)}, true},
		{"twice", []feedEvent{green, event("changes", 14*time.Second, user("green", pinged, false))}, false},
		{"twice with another time", []feedEvent{green, changes(user("green", 30*time.Second, false))}, false},
		{"twice in one event", []feedEvent{changes(user("grey", pinged, true), user("yellow", pinged, false))}, false},
		{"twice across connections", []feedEvent{green, {}, green}, false},
		{"again after a reset", []feedEvent{green, event("reset", 14*time.Second, user("green", pinged, false))}, true},
		{"missed before a tick", []feedEvent{green, event("tick", time.Second)}, false},
		{"missed before other changes", []feedEvent{green, event("changes", time.Second)}, false},
		{"unknown after a reset", []feedEvent{green, event("reset", 2*time.Second), event("tick", time.Second)}, true},
		{"a part, and again after its end", []feedEvent{green, part, {}, yellow}, true},
		{"a part, and nothing after its end", []feedEvent{green, part, {}, event("tick", time.Second)}, false},
		{"a part that is not the last", []feedEvent{green, part, event("tick", time.Second)}, true},
		{"wrong from the start", []feedEvent{changes(user("green", pinged, false))}, false},
		{"never seen", []feedEvent{changes(fedPresence{presence{"a", "grey", nil, false}, nil})}, false},
		{"left, but did not", []feedEvent{changes(user("grey", pinged, true))}, false},
		{"a ping that nobody sent", []feedEvent{changes(user("yellow", 10*time.Second, false))}, false},
		{"green and left", []feedEvent{changes(user("green", pinged, true))}, false},
		{"an older time", []feedEvent{yellow, event("tick", 10*time.Second)}, false},
		{"an older time on a new connection", []feedEvent{yellow, {}, event("tick", 2200*time.Millisecond)}, true},
		{"a time ahead", []feedEvent{yellow, event("tick", -time.Minute)}, false},
		{"valid_until", []feedEvent{changes(fedPresence{yellow.Users[0].presence, &until})}, false},
		{"not watched", []feedEvent{changes(fedPresence{presence{"b", "grey", nil, false}, nil})}, false},
		{"a tick with users", []feedEvent{event("tick", 2*time.Second, user("yellow", pinged, false))}, false},
		{"unknown", []feedEvent{event("news", 2*time.Second)}, false},
		{"without a cursor", []feedEvent{{name: "tick", feedData: feedData{AsOf: at(time.Second)}}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger()
			l.attempt("a")(true)
			sent := now.Add(-pinged)
			l.acknowledge("a", ack{lastseen.State{At: lastseen.InstantOf(sent)}, sent, sent})
			v := newView("a watcher", l, lastseen.Thresholds{Green: 10 * time.Second, Yellow: time.Minute}, []string{"a"})
			for _, e := range test.events {
				if e.name == "" {
					v.connect()
					continue
				}
				v.checked = time.Time{}
				v.apply(e)
			}
			require.Equal(t, test.right, len(l.broken()) == 0, l.broken())
		})
	}
}

// TestViewOfEveryone: watchers of everyone can be told of a user twice in the pages of a snapshot, but not after that.
func TestViewOfEveryone(t *testing.T) {
	l := newLedger()
	l.attempt("a")(true)
	v := newView("everyone", l, lastseen.Thresholds{Green: 10 * time.Second, Yellow: time.Minute}, nil)
	event := func(more bool) feedEvent {
		now := time.Now()
		seen := lastseen.InstantOf(now).String()
		return feedEvent{"changes", fmt.Sprint(now), now, feedData{
			lastseen.InstantOf(now).String(), []fedPresence{{presence{"a", lastseen.Green, &seen, false}, nil}}, "1", more,
		}}
	}
	v.apply(event(true))
	v.apply(event(false))
	require.Empty(t, l.broken())
	v.apply(event(false))
	require.Len(t, l.broken(), 1)
}

// TestSettled: the state of a user is certain only if nothing can have changed it.
func TestSettled(t *testing.T) {
	now := time.Now()
	old := ack{lastseen.State{At: 1000}, now.Add(-time.Minute), now.Add(-time.Minute)}
	newer := ack{lastseen.State{At: 2000}, now.Add(-time.Second), now.Add(-time.Second)}
	for _, test := range []struct {
		name string
		what func(l *ledger)
		ok   bool
	}{
		{"acknowledged before", func(*ledger) {}, true},
		{"acknowledged since", func(l *ledger) { l.acknowledge("a", newer) }, false},
		{"without an outcome", func(l *ledger) { l.attempt("a") }, false},
		{"failed", func(l *ledger) { l.attempt("a")(false) }, false},
		{"succeeded", func(l *ledger) { l.attempt("a")(true) }, true},
		{"perhaps lost", func(l *ledger) { l.suspect(time.Now().Add(-time.Hour))(time.Now()) }, false},
		{"another user", func(l *ledger) { l.attempt("b") }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger()
			l.acknowledge("a", old)
			test.what(l)
			state, ok := l.settled("a", now.Add(-10*time.Second))
			require.Equal(t, test.ok, ok)
			if ok {
				require.Equal(t, old, state)
			}
		})
	}
}
