package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/examples/internal/demo"
)

// lastSeen is what lastseen would know of a user.
type lastSeen struct {
	at   time.Time
	left bool
}

// status is the one by the rule of lastseen.
func (l lastSeen) status(now time.Time) string {
	switch age := now.Sub(l.at); {
	case l.left || age >= demo.Yellow:
		return "grey"
	case age >= demo.Green:
		return "yellow"
	default:
		return "green"
	}
}

func names() []string {
	return []string{"alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"}
}

// record applies what people did, and checks it.
func record(t *testing.T, received map[string]lastSeen, did deeds, now time.Time) {
	t.Helper()
	for _, ping := range did.pings {
		at := now
		if ping.At != nil {
			at = *ping.At
		}
		require.False(t, at.After(now))
		received[ping.User] = lastSeen{at: at}
	}
	for _, leave := range did.leaves {
		received[leave.User] = lastSeen{at: now, left: true}
	}
}

// TestCrowdShowsEveryStatus: at the start, and in every minute after that, some people are green, yellow and grey, and
// all people change.
func TestCrowdShowsEveryStatus(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		people := newCrowd(names(), rand.New(rand.NewPCG(seed, 0)))
		now := time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
		received, seen, changed := map[string]lastSeen{}, map[string]int{}, map[string]map[string]bool{}
		for second := range 600 {
			record(t, received, people.act(now), now)
			for user, last := range received {
				status := last.status(now)
				seen[status]++
				if changed[user] == nil {
					changed[user] = map[string]bool{}
				}
				changed[user][status] = true
			}
			if second%60 == 0 {
				for _, status := range []string{"green", "yellow", "grey"} {
					require.Positive(t, seen[status], "%s in the minute before second %d, seed %d", status, second, seed)
				}
				clear(seen)
			}
			now = now.Add(time.Second)
		}
		for _, name := range names() {
			require.Len(t, changed[name], 3, "%s, seed %d", name, seed)
		}
	}
}

// TestCrowdPingsInTime: people who are online never turn yellow, and the others send nothing.
func TestCrowdPingsInTime(t *testing.T) {
	t.Parallel()
	people := newCrowd(names(), rand.New(rand.NewPCG(1, 2)))
	now := time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
	received, idles, leaves := map[string]lastSeen{}, 0, 0
	for second := range 3600 {
		did := people.act(now)
		record(t, received, did, now)
		leaves += len(did.leaves)
		for _, ping := range did.pings {
			require.True(t, second == 0 || now.Equal(received[ping.User].at))
			if ping.Activity == "idle" {
				idles++
			}
		}
		for _, p := range people.people {
			if doing := people.doing(p); doing == here || doing == idle {
				require.Equal(t, "green", received[p.name].status(now))
			}
		}
		now = now.Add(time.Second)
	}
	require.Positive(t, idles)
	require.Positive(t, leaves)
}
