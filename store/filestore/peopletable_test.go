package filestore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// person is what a table should have of a user.
type person struct {
	known  bool
	said   lastseen.Said
	idle   lastseen.Instant
	hidden hidden
}

// TestPeopleTable compares a table with a map, also of users whose hashes collide.
func TestPeopleTable(t *testing.T) {
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
				u.set(user, score(base))
				p.known = true
			}),
			"trimmed": change(func(user string, p *person) {
				u.remove(user)
				p.known, p.idle = false, 0
			}),
			"forgotten": change(func(user string, p *person) {
				u.forget(user)
				*p = person{}
			}),
			"said": change(func(user string, p *person) {
				p.said = lastseen.Said{
					Note:  rapid.SampledFrom([]string{"", "x"}).Draw(t, "note"),
					Until: lastseen.Instant(rapid.IntRange(0, 2).Draw(t, "until")),
				}
				u.say(user, p.said)
			}),
			"hidden": change(func(user string, p *person) {
				p.hidden.End = lastseen.Instant(rapid.IntRange(0, 2).Draw(t, "end"))
				u.hide(user, p.hidden)
			}),
			"idle": change(func(user string, p *person) {
				d := phone(base)
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
				requireTable(t, u.people, want)
			},
		})
	})
}

func requirePerson(t require.TestingT, u *users, user string, want person) {
	s, d := u.details(user)
	require.Equal(t, want.known, s.Known())
	details := store.Details{Said: want.said, IdleSince: want.idle}
	require.Equal(t, details != store.Details{}, d != nil, "%s: %v", user, want)
	require.Equal(t, details, u.detailsOf(user))
	require.Equal(t, want.said, u.people.saidOf(user))
	require.Equal(t, want.hidden, u.people.hiddenOf(user))
}

// requireTable checks what a table counts.
func requireTable(t require.TestingT, p *peopleTable, want map[string]person) {
	if p == nil {
		return
	}
	var ends, saidBy int
	var file changes
	texts := map[string]string{}
	for user, k := range want {
		if k.said.Until != 0 {
			ends++
		}
		if k.known && k.said != (lastseen.Said{}) {
			saidBy++
		}
		if k.said != (lastseen.Said{}) {
			texts[user] = fmt.Sprint(k.said)
			file.say("", user, k.said)
		}
		if k.hidden != (hidden{}) {
			texts[user] += fmt.Sprint(k.hidden)
			file.hide("", user, k.hidden)
		}
	}
	require.Equal(t, ends, p.ends.Len())
	require.Equal(t, saidBy, p.saidBy)
	require.Equal(t, texts, textsOf(p))
	require.InDelta(t, len(file.buf), p.bytes, float64(1+20*len(want)))
}
