package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// doing is what a simulated person does.
type doing int

const (
	gone   doing = iota // offline
	here                // uses the page
	idle                // has the page open and does not use it
	silent              // has lost the network: no ping and no leave
)

// person is a simulated user.
type person struct {
	name   string
	doing  doing
	until  time.Time // when they do something else
	ping   time.Time // when the next one is due
	visits int       // each one is a new device
}

// crowd is all simulated users.
type crowd struct {
	people []*person
	settings
	random *rand.Rand
	spoken int       // lines
	speak  time.Time // when someone says the next one
}

// deeds are what people did in a moment.
type deeds struct {
	pings, leaves []presenceItem
	messages      []message
}

func newCrowd(s settings, random *rand.Rand) *crowd {
	c := &crowd{settings: s, random: random}
	for _, name := range []string{"alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"} {
		c.people = append(c.people, &person{name: name})
	}
	return c
}

// names returns the names of all people.
func (c *crowd) names() (all []string) {
	for _, p := range c.people {
		all = append(all, p.name)
	}
	return all
}

// act lets people do what is due. The first call gives each of them a past, so that every status shows at once.
func (c *crowd) act(now time.Time) (did deeds) {
	for i, p := range c.people {
		switch {
		case p.until.IsZero():
			c.begin(p, i, now, &did)
		case !now.Before(p.until):
			c.change(p, now, &did)
		}
		if p.online() && !now.Before(p.ping) {
			did.pings = append(did.pings, p.presenceItem())
			p.ping = now.Add(time.Duration(float64(c.pingInterval) * (0.8 + 0.2*c.random.Float64())))
		}
	}
	c.talk(now, &did)
	return did
}

// talk lets one of those who use the page say something now and then, and several at the start.
func (c *crowd) talk(now time.Time, did *deeds) {
	if now.Before(c.speak) {
		return
	}
	var speakers []*person
	for _, p := range c.people {
		if p.doing == here {
			speakers = append(speakers, p)
		}
	}
	lines := 1
	if c.speak.IsZero() {
		lines = 3
	}
	c.speak = now.Add(c.some(c.green) / 2)
	for range min(lines, len(speakers)) {
		speaker := speakers[c.random.IntN(len(speakers))]
		did.messages = append(did.messages, message{User: speaker.name, Text: c.line()})
	}
}

// begin gives a person a past: half of the people are online, the others lost their network some time ago.
func (c *crowd) begin(p *person, i int, now time.Time, did *deeds) {
	p.visits = 1
	if i%2 == 0 {
		p.doing, p.until = here, now.Add(c.some(c.green))
		return
	}
	at := now.Add(-c.green * time.Duration(1+i/2)) // one green, one turning yellow, and so on
	ping := p.presenceItem()
	ping.At = &at
	did.pings = append(did.pings, ping)
	p.doing, p.until = silent, now.Add(c.some(c.yellow))
}

// change lets a person do something else.
func (c *crowd) change(p *person, now time.Time, did *deeds) {
	p.until = now.Add(c.some(c.green))
	switch n := c.random.IntN(10); {
	case p.doing == gone, p.doing == silent && n < 7:
		p.doing, p.ping, p.visits = here, now, p.visits+1
		did.note("%s is here", p)
	case p.doing == silent: // never comes back: nobody leaves
		p.doing = gone
	case p.doing == idle && n < 6:
		p.doing, p.ping = here, now
		did.note("%s is active again", p)
	case n < 3:
		p.doing, p.until = silent, now.Add(c.yellow+c.some(c.green))
		did.note("%s has lost the network: yellow after %s, grey after %s", p, c.green, c.yellow)
	case n < 6:
		p.doing = gone
		did.leaves = append(did.leaves, p.presenceItem())
		did.note("%s has closed the page: grey at once", p)
	case n < 8 && p.doing == here:
		p.doing, p.ping = idle, now
		did.note("%s is idle: a yellow dot, although the page is open", p)
	}
}

// some returns a random time of about d.
func (c *crowd) some(d time.Duration) time.Duration {
	return d/2 + time.Duration(c.random.Int64N(int64(d)))
}

// line returns something to say.
func (c *crowd) line() string {
	lines := []string{
		"Did you see who is online?", "My dot says green, so I must be here.", "Back in a moment.",
		"Who ate the last biscuit?", "I closed one of my two tabs, and nobody noticed.", "Hello from the train!",
		"Yellow is such a polite colour.", "Shall we start?",
	}
	c.spoken++
	return lines[c.spoken%len(lines)]
}

func (p *person) online() bool { return p.doing == here || p.doing == idle }

func (p *person) presenceItem() presenceItem {
	s := presenceItem{User: p.name, Device: device{ID: fmt.Sprintf("visit-%d", p.visits), Kind: "web"}}
	if p.doing == idle {
		s.Activity = "idle"
	}
	return s
}

func (p *person) String() string { return p.name }

// note adds a message that explains what a person does.
func (d *deeds) note(format string, args ...any) {
	d.messages = append(d.messages, message{Text: fmt.Sprintf(format, args...)})
}
