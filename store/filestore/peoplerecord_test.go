package filestore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

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
