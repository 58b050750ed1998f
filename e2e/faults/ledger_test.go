//go:build faults

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestLedger feeds the ledger with true and false responses: a checker that misses a lost write proves nothing.
func TestLedger(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	at := func(age time.Duration) string { return now.Add(-age).Format("2006-01-02T15:04:05.000Z") }
	body := func(status string, age time.Duration, left bool) []byte {
		return fmt.Appendf(nil, `{"user":"a","status":%q,"last_seen":%q,"left":%t,"as_of":%q,"green_ms":60000,"yellow_ms":300000}`,
			status, at(age), left, at(0))
	}
	ahead := fmt.Appendf(nil, `{"user":"a","status":"green","last_seen":%q,"left":false,"as_of":%q,"green_ms":60000,"yellow_ms":300000}`,
		at(time.Second), at(-10*time.Second))
	never := fmt.Appendf(nil, `{"user":"a","status":"grey","last_seen":null,"left":false,"as_of":%q,"green_ms":60000,"yellow_ms":300000}`, at(0))
	for _, test := range []struct {
		name      string
		lookup    []byte
		right     bool
		mayBeLost bool
	}{
		{"as acknowledged", body("green", time.Second, false), true, false},
		{"newer", body("green", 0, false), true, false},
		{"newer leave", body("grey", 0, true), true, false},
		{"older", body("green", 2*time.Second, false), false, false},
		{"older, but a crash may have lost it", body("green", 2*time.Second, false), true, true},
		{"never seen", never, false, false},
		{"never seen, but a crash may have lost it", never, true, true},
		{"grey", body("grey", time.Second, false), false, false},
		{"green after a leave", body("green", time.Second, true), false, false},
		{"seen long after the last ping", body("green", -10*time.Minute, false), false, false},
		{"evaluated at another time", ahead, false, false},
		{"not JSON", []byte(`{"user":"a"`), false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger()
			l.attempt("a")
			l.acknowledgeBody("a", body("green", time.Second, false), now)
			if test.mayBeLost {
				l.suspect(time.Now().Add(-time.Minute))(time.Now())
			}
			time.Sleep(time.Millisecond) // a lookup that begins later
			l.checkBody("a", test.lookup, time.Now())
			require.Equal(t, test.right, len(l.broken()) == 0, l.broken())
		})
	}
}

// TestLedgerKeepsAcks: after a crash that can lose some acknowledgements, those before it still count.
func TestLedgerKeepsAcks(t *testing.T) {
	l, now := newLedger(), time.Now()
	for age := 200; age >= 0; age -= 10 { // seconds
		sent := now.Add(-time.Duration(age) * time.Second)
		l.acknowledge("a", ack{lastseen.State{At: lastseen.InstantOf(sent)}, sent, sent})
	}
	require.Less(t, len(l.users["a"]), 10, "old ones are dropped")
	require.Equal(t, lastseen.InstantOf(now), l.required("a", now.Add(time.Second)).state.At)
	l.suspect(time.Now().Add(-25 * time.Second))(time.Now())
	require.Equal(t, lastseen.InstantOf(now.Add(-30*time.Second)), l.required("a", now.Add(time.Second)).state.At)
}

// TestLedgerUnknown: a user who never pinged is not known.
func TestLedgerUnknown(t *testing.T) {
	l := newLedger()
	now := time.Now().UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
	seen := presence{User: "a", Status: lastseen.Grey}
	view := evaluated{now, 60_000, 300_000}
	l.check(seen, view, time.Now())
	require.Empty(t, l.broken())
	seen.Status, seen.LastSeen = lastseen.Green, &now
	l.check(seen, view, time.Now())
	require.Len(t, l.broken(), 1)
}

// TestLedgerSuspects: a lookup that disregards an acknowledgement is right as long as a crash can have lost that.
func TestLedgerSuspects(t *testing.T) {
	l, now := newLedger(), time.Now()
	state := lastseen.State{At: lastseen.InstantOf(now)}
	l.acknowledge("a", ack{state, now.Add(-2 * time.Second), now.Add(-time.Second)})
	withdrawn := l.suspect(now.Add(-time.Minute))
	require.False(t, l.required("a", now).state.Known())
	withdrawn(time.Time{})
	require.Equal(t, state, l.required("a", now).state)

	view := evaluated{lastseen.InstantOf(now).String(), 60_000, 300_000}
	l.check(presence{User: "a", Status: lastseen.Grey}, view, now)
	require.Len(t, l.broken(), 1)
	l.suspect(now.Add(-time.Minute))(now)
	require.Empty(t, l.broken(), "a failover that was noticed later")
}
