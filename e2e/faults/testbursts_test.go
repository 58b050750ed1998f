//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/lastseen/lastseen"
)

// burst has twelve clients send expensive requests without a pause, until the returned function is called.
func (l *load) burst(t testing.TB, seed uint64) (end func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	for i := range 12 {
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
	end = sync.OnceFunc(func() {
		close(done)
		running.Wait()
	})
	t.Cleanup(end)
	return end
}

// expensive sends a list, a count, or many pings or leaves at once.
func (l *load) expensive(random *rand.Rand) {
	switch random.IntN(4) {
	case 0:
		l.list(random)
	case 1:
		l.call(l.anyServer(random), http.MethodGet, "/counts", nil)
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
	r, ok := l.call(l.anyServer(random), http.MethodGet, "/users?limit=1000&order="+order, nil)
	if !ok {
		return
	}
	var found lookup
	if err := json.Unmarshal(r.body, &found); err != nil {
		l.violate("a list with %q: %v", r.body, err)
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
	r, ok := l.call(l.anyServer(random), http.MethodPost, "/"+kind, map[string][]item{kind: items})
	defer func() {
		for _, end := range ends {
			end(ok)
		}
	}()
	if !ok {
		return
	}
	if string(r.body) != fmt.Sprintf("{\"recorded\":%d}\n", len(items)) {
		l.violate("%d %s: %q", len(items), kind, r.body)
	}
	state := lastseen.State{At: at, Left: kind == "leaves"}
	for _, i := range items {
		l.acknowledge(i.User, ack{state, sent, time.Now()})
	}
}
