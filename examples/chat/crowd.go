package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lastseen/lastseen/examples/internal/demo"
)

// doing is what a simulated person does.
type doing int

const (
	gone   doing = iota // offline
	here                // uses the page
	idle                // has the page open and does not use it
	silent              // has lost the network: no ping and no leave
)

// phase is a part of what every person does again and again, and what the page says when it begins.
type phase struct {
	doing doing
	note  string
}

// person is a simulated user.
type person struct {
	name  string
	phase int       // counts up
	until time.Time // when the next phase begins
	ping  time.Time // when the next one is due
}

// crowd is all simulated users.
type crowd struct {
	people []*person
	phases []phase
	random *rand.Rand
	speak  time.Time // when someone says the next line
}

// deeds are what people did in a moment.
type deeds struct {
	pings, leaves []presenceItem
	messages      []message
}

func newCrowd(names []string, random *rand.Rand) *crowd {
	c := &crowd{random: random, phases: []phase{
		{here, "is here"},
		{idle, "is idle: a yellow dot, although the page is open"},
		{here, "is active again"},
		{gone, "has closed the page: grey at once"},
		{here, "is here"},
		{silent, fmt.Sprintf("has lost the network: yellow after %s, grey after %s", demo.Green, demo.Yellow)},
	}}
	for _, name := range names {
		c.people = append(c.people, &person{name: name})
	}
	return c
}

// doing returns what a person does.
func (c *crowd) doing(p *person) doing { return c.phases[p.phase%len(c.phases)].doing }

// act lets people do what is due. The first call gives each of them a past, so that every status shows at once.
func (c *crowd) act(now time.Time) (did deeds) {
	for i, p := range c.people {
		switch {
		case p.until.IsZero():
			c.begin(p, i, now, &did)
		case !now.Before(p.until):
			c.change(p, now, &did)
		}
		if doing := c.doing(p); (doing == here || doing == idle) && !now.Before(p.ping) {
			did.pings = append(did.pings, newItem(p.name, doing == idle))
			p.ping = now.Add(time.Duration(float64(demo.PingInterval) * (0.8 + 0.2*c.random.Float64())))
		}
	}
	speaker := c.people[c.random.IntN(len(c.people))]
	if c.doing(speaker) == here && !now.Before(c.speak) {
		did.messages = append(did.messages, message{User: speaker.name, Text: c.line()})
		c.speak = now.Add(c.some(demo.Green) / 2)
	}
	return did
}

// begin gives a person a past: half of the people are online, the others lost their network some time ago.
func (c *crowd) begin(p *person, i int, now time.Time, did *deeds) {
	p.until = now.Add(c.some(demo.Green))
	if i%2 == 0 {
		return
	}
	p.phase = len(c.phases) - 1                       // silent
	at := now.Add(-demo.Green * time.Duration(1+i/2)) // one green, one turning yellow, and so on
	ping := newItem(p.name, false)
	ping.At = &at
	did.pings = append(did.pings, ping)
}

// change begins the next phase of a person.
func (c *crowd) change(p *person, now time.Time, did *deeds) {
	p.phase++
	p.until, p.ping = now.Add(c.some(demo.Green)), now
	switch c.doing(p) {
	case silent:
		p.until = p.until.Add(demo.Yellow)
	case gone:
		did.leaves = append(did.leaves, newItem(p.name, false))
	}
	did.messages = append(did.messages, message{Text: p.name + " " + c.phases[p.phase%len(c.phases)].note})
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
	return lines[c.random.IntN(len(lines))]
}
