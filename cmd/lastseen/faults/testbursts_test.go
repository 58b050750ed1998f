//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

// burstWorkers is how many clients of a burst send requests without a pause.
const burstWorkers = 12

// burst sends many expensive requests, until the returned function is called.
func (l *load) burst(seed uint64) (end func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	for i := range burstWorkers {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		running.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					l.expensive(random)
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		running.Wait()
	})
}

// expensive sends a list, a count, or many pings or leaves at once.
func (l *load) expensive(random *rand.Rand) {
	switch random.IntN(4) {
	case 0:
		l.list(random)
	case 1:
		l.call(random, http.MethodGet, "/counts")
	case 2:
		l.writeMany(random, "pings", 200)
	case 3:
		l.writeMany(random, "leaves", 20)
	}
}

// list checks a page of users.
func (l *load) list(random *rand.Rand) {
	order := []string{"newest", "oldest"}[random.IntN(2)]
	began := time.Now()
	body, ok := l.call(random, http.MethodGet, "/users?limit=1000&order="+order)
	if !ok {
		return
	}
	var found struct {
		evaluated
		Users []presence `json:"users"`
	}
	if err := json.Unmarshal(body, &found); err != nil {
		l.violate("a list with %q: %v", body, err)
		return
	}
	for _, user := range found.Users {
		l.check(user, found.evaluated, began)
	}
}

// writeMany records random users at the time of this machine.
func (l *load) writeMany(random *rand.Rand, kind string, n int) {
	type item struct {
		User string `json:"user"`
		At   string `json:"at"`
	}
	sent := time.Now()
	at := lastseen.InstantOf(sent)
	var items []item
	var ends []func(acknowledged bool)
	for range n {
		user := l.user(random)
		ends = append(ends, l.attempt(user))
		items = append(items, item{user, at.String()})
	}
	body, err := json.Marshal(map[string][]item{kind: items})
	if err != nil {
		l.violate("%v", err)
		return
	}
	response, ok := l.callServer(l.urls[random.IntN(len(l.urls))], http.MethodPost, "/"+kind, body)
	defer func() {
		for _, end := range ends {
			end(ok)
		}
	}()
	if !ok {
		return
	}
	if string(response) != fmt.Sprintf("{\"recorded\":%d}\n", len(items)) {
		l.violate("%d %s: %q", len(items), kind, response)
	}
	state := lastseen.State{At: at, Left: kind == "leaves"}
	for _, i := range items {
		l.acknowledge(i.User, ack{state, sent, time.Now()})
	}
}
