package memstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// person is what a table should have of a user.
type person struct {
	known        bool
	availability lastseen.AvailabilityState
	idle         lastseen.Instant
	hidden       Hidden
}

// TestAvailabilityTable compares a table with a map, also of users whose hashes collide.
func TestAvailabilityTable(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	t.Parallel()
	names := []string{"a", "b", "c", "dd", "ee"}
	rapid.Check(t, func(t *rapid.T) {
		u, want := newUsers(), map[string]person{}
		if rapid.Bool().Draw(t, "collide") {
			u.hash = func(string) uint64 { return 7 }
		}
		name := rapid.SampledFrom(names)
		change := func(f func(user string, p *person)) func(*rapid.T) {
			return func(t *rapid.T) {
				user := name.Draw(t, "user")
				p := want[user]
				f(user, &p)
				want[user] = p
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"seen": change(func(user string, p *person) {
				u.set(user, packed.Score(base))
				p.known = true
			}),
			"trimmed": change(func(user string, p *person) {
				u.remove(user)
				p.known, p.idle = false, 0
			}),
			"forgotten": change(func(user string, p *person) {
				u.setAvailability(user, lastseen.AvailabilityState{})
				u.hide(user, Hidden{})
				u.remove(user)
				*p = person{}
			}),
			"said": change(func(user string, p *person) {
				p.availability = lastseen.AvailabilityState{
					Note:  rapid.SampledFrom([]string{"", "x"}).Draw(t, "note"),
					Until: lastseen.Instant(rapid.IntRange(0, 2).Draw(t, "until")),
				}
				u.setAvailability(user, p.availability)
			}),
			"hidden": change(func(user string, p *person) {
				p.hidden.End = lastseen.Instant(rapid.IntRange(0, 2).Draw(t, "end"))
				u.hide(user, p.hidden)
			}),
			"idle": change(func(user string, p *person) {
				d := lastseen.Devices{Records: []lastseen.DeviceRecord{{ID: "phone", Kind: lastseen.Mobile, At: base}}}
				d.Records[0].IdleSince = lastseen.Instant(rapid.IntRange(0, 1).Draw(t, "idle"))
				u.setDevices(user, d, nil)
				if p.known {
					p.idle = d.Records[0].IdleSince
				}
			}),
			"": func(t *rapid.T) {
				for _, user := range names {
					requirePerson(t, u, user, want[user])
				}
				requireTable(t, u.availability, want)
			},
		})
	})
}

func requirePerson(t require.TestingT, u *users, user string, want person) {
	s, d := u.details(user)
	require.Equal(t, want.known, s.Known())
	details := store.Details{Availability: want.availability, IdleSince: want.idle}
	require.Equal(t, details != store.Details{}, d != nil, "%s: %v", user, want)
	require.Equal(t, details, u.detailsOf(user))
	require.Equal(t, want.availability, u.availability.availabilityOf(user))
	require.Equal(t, want.hidden, u.availability.hiddenOf(user))
}

func requireTable(t require.TestingT, p *availabilityTable, want map[string]person) {
	if p == nil {
		return
	}
	var ends, listed int
	var bytes int64
	texts := map[string]string{}
	for user, k := range want {
		if k.availability.Until != 0 {
			ends++
		}
		if k.known && k.availability != (lastseen.AvailabilityState{}) {
			listed++
		}
		if k.availability != (lastseen.AvailabilityState{}) {
			texts[user] = fmt.Sprint(k.availability)
			bytes += availabilityBytes(user, k.availability)
		}
		if k.hidden != (Hidden{}) {
			texts[user] += fmt.Sprint(k.hidden)
			bytes += hiddenBytes(user, k.hidden)
		}
	}
	require.Equal(t, ends, p.ends.Len())
	require.Equal(t, listed, p.listed)
	require.Equal(t, texts, textsOf(p))
	require.Equal(t, bytes, p.bytes)
}

func textsOf(p *availabilityTable) map[string]string {
	all := map[string]string{}
	if p == nil {
		return all
	}
	p.availabilities.Scan(func(user string, s *lastseen.AvailabilityState) bool {
		all[user] = fmt.Sprint(*s)
		return true
	})
	p.hidden.Scan(func(user string, h *Hidden) bool {
		all[user] += fmt.Sprint(*h)
		return true
	})
	return all
}
