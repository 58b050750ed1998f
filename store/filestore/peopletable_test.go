package filestore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
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

var (
	busy      = lastseen.Said{Availability: lastseen.Busy, Note: "in a meeting"}
	away      = lastseen.Said{Availability: lastseen.Away, Until: base + 1000}
	hiding    = hidden{HiddenTime: lastseen.HiddenTime{End: base + 500}, until: base + 500, note: "not here"}
	wasHidden = hidden{HiddenTime: lastseen.HiddenTime{End: base + 400, Ended: true}}
)

// plainPeople returns what users say, as texts, also in namespaces that do not exist.
func (c contents) plainPeople() map[string]string {
	all := map[string]string{}
	for name, users := range c {
		if users.unlisted {
			name = "(" + name + ")"
		}
		texts := textsOf(users.people)
		for user, text := range texts {
			all[name+"/"+user] = text
		}
	}
	return all
}

func textsOf(p *peopleTable) map[string]string {
	all := map[string]string{}
	if p == nil {
		return all
	}
	p.said.Scan(func(user string, s *lastseen.Said) bool {
		all[user] = fmt.Sprint(*s)
		return true
	})
	p.hidden.Scan(func(user string, h *hidden) bool {
		all[user] += fmt.Sprint(*h)
		return true
	})
	return all
}

func TestRecordOfPeople(t *testing.T) {
	var c changes
	for _, user := range []string{"alice", "bob", "carol", "dave"} {
		c.set("chat", user, lastseen.State{At: base})
		c.say("chat", user, busy)
		c.hide("chat", user, hiding)
	}
	c.say("chat", "never seen", lastseen.Said{Note: "a note alone"})
	c.say("chat", "alice", away)
	c.hide("chat", "alice", wasHidden)
	c.set("chat", "bob", lastseen.State{})
	c.trim("chat", "carol")
	c.say("chat", "dave", lastseen.Said{})
	c.hide("chat", "dave", hidden{})
	c.say("dropped", "alice", busy)
	c.drop("dropped")
	c.set("unlisted", "alice", lastseen.State{At: base})
	c.hide("unlisted", "alice", hiding)
	c.unlist("unlisted")
	c.hide("unlisted", "bob", hiding)
	c.unlist("unlisted")
	c.hide("back", "alice", hiding)
	c.unlist("back")
	c.set("back", "alice", lastseen.State{At: base})
	data := contents{}
	for range 2 {
		require.NoError(t, data.replay(c.buf))
		require.Equal(t, map[string]map[string]score{
			"chat": {"alice": score(base), "dave": score(base)}, "unlisted": {}, "back": {"alice": score(base)},
		}, data.plain())
		require.Equal(t, map[string]string{
			"chat/alice": fmt.Sprint(away) + fmt.Sprint(wasHidden), "chat/carol": fmt.Sprint(busy) + fmt.Sprint(hiding),
			"chat/never seen":  fmt.Sprint(lastseen.Said{Note: "a note alone"}),
			"(unlisted)/alice": fmt.Sprint(hiding), "(unlisted)/bob": fmt.Sprint(hiding),
			"back/alice": fmt.Sprint(hiding),
		}, data.plainPeople())
	}
	for cut := range c.buf {
		_ = contents{}.replay(c.buf[:cut]) // must not panic
	}
}

// TestInvalidPeople: what no store writes is refused.
func TestInvalidPeople(t *testing.T) {
	in := "n\x04chat"
	for _, run := range []string{
		in + "a\x01u\x04busy\x00\x00", in + "a\x01u\x00\x02\x01n", in + "h\x01u\x04\x00\x04\x01n",
		in + "h\x01u\x04\x01\x00\x00", in + "t\x01u", in + "e", in + "h\x01u\x00\x00\x00\x00",
	} {
		require.NoError(t, contents{}.replay([]byte(run)), "%q", run)
	}
	for what, run := range map[string]string{
		"no namespace":          "a\x01u\x04busy\x00\x00",
		"no namespace to hide":  "h\x01u\x04\x00\x04\x01n",
		"no namespace to trim":  "t\x01u",
		"no namespace to empty": "e",
		"said to be invisible":  in + "a\x01u\x09invisible\x00\x00",
		"unknown":               in + "a\x01u\x04gone\x00\x00",
		"before time":           in + "a\x01u\x04busy\x01\x00",
		"beyond time":           in + "a\x01u\x04busy\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",
		"half a note":           in + "a\x01u\x04busy\x00\x02n",
		"no note":               in + "a\x01u\x04busy\x00",
		"hidden before time":    in + "h\x01u\x01\x00\x00\x00",
		"until before time":     in + "h\x01u\x04\x00\x01\x00",
		"neither ended nor not": in + "h\x01u\x04\x02\x00\x00",
		"half a hidden time":    in + "h\x01u\x04\x00",
	} {
		require.ErrorIs(t, contents{}.replay([]byte(run)), ErrDamaged, what)
	}
}
