//go:build faults

package faults

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// watchers are several, of a load.
type watchers struct {
	load *load
	all  []*watcher
}

// startWatchers starts watchers of everyone, of many users, and of a few, at the servers of a load, and waits until all
// are connected. They stop at the latest when the test ends.
func startWatchers(t testing.TB, l *load, each int, thresholds lastseen.Thresholds) *watchers {
	t.Helper()
	ws := &watchers{load: l}
	many := make([]string, min(l.options.users, 500))
	for i := range many {
		many[i] = fmt.Sprintf("user-%d", i)
	}
	for i := range each {
		ws.start(t, fmt.Sprintf("everyone %d", i), nil, thresholds)
		ws.start(t, fmt.Sprintf("many %d", i), many, thresholds)
		ws.start(t, fmt.Sprintf("few %d", i), many[len(many)/2:][:min(mostInQuery, len(many)/2)], thresholds)
	}
	ws.await(t, "every watcher to be connected", func(s watcherStats) bool { return s.connects > 0 })
	return ws
}

func (ws *watchers) start(t testing.TB, name string, users []string, thresholds lastseen.Thresholds) {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &watcher{
		name: name, ledger: ws.load.ledger, namespace: ws.load.options.namespace, urls: ws.load.urls, users: users,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		random: rand.New(rand.NewPCG(ws.load.options.seed, uint64(len(ws.all)))),
		stop:   stop, view: newView(name, ws.load.ledger, thresholds, users), problems: map[string]int{},
	}
	ws.all = append(ws.all, w)
	w.over.Go(func() { w.follow(ctx) })
	t.Cleanup(w.end)
}

// await waits until a condition holds for every watcher.
func (ws *watchers) await(t testing.TB, what string, holds func(watcherStats) bool) {
	t.Helper()
	for _, w := range ws.all {
		await(t, w.name+": "+what, func() bool {
			ws.load.requireKept(t)
			return holds(w.snapshot())
		})
	}
}

// awaitUpdates waits until every watcher has got n more updates.
func (ws *watchers) awaitUpdates(t testing.TB, n int) {
	t.Helper()
	before := map[*watcher]int{}
	for _, w := range ws.all {
		before[w] = w.snapshot().updates
	}
	for _, w := range ws.all {
		await(t, fmt.Sprintf("%s: %d more updates", w.name, n), func() bool {
			ws.load.requireKept(t)
			return w.snapshot().updates >= before[w]+n
		})
	}
}

// finish stops the load, compares what each watcher was told with a lookup of all users, and stops them. It returns
// the most resets of one watcher, and the fewest.
func (ws *watchers) finish(t testing.TB, server string) (most, fewest int) {
	t.Helper()
	l := ws.load
	l.stop(t)
	stopped := lastseen.InstantOf(time.Now().Add(clockTolerance))
	states := ws.settledStates(t, server)
	fewest = math.MaxInt
	compared := 0
	for _, w := range ws.all {
		certain := w.awaitExact(t, states, stopped)
		w.end()
		s := w.snapshot()
		most, fewest = max(most, s.resets), min(fewest, s.resets)
		t.Logf("%s: %d connections, ended by %v; %d events, %d updates, %d resets; %d checks, %d at the end", w.name,
			s.connects, s.problems, s.events, s.updates, s.resets, s.checks, certain)
		compared += certain
		for problem := range s.problems {
			require.Contains(t, allowedProblems(), problem, w.name)
		}
	}
	require.Positive(t, compared, "users whose state is certain")
	l.requireKept(t)
	return most, fewest
}

// allowedProblems are why a connection may end, or not begin, while something is broken.
func allowedProblems() []string {
	return []string{
		"ended", "broken", errSilence.Error(), errNotHeard.Error(), "503 store_unavailable", "503 store_full",
		"503 shutting_down", overloaded,
	}
}

// settledStates looks up all users, and returns those whom no request can change any more whose client gave up.
func (ws *watchers) settledStates(t testing.TB, server string) map[string]lastseen.State {
	t.Helper()
	states := ws.load.states(t, server)
	maps.DeleteFunc(states, func(user string, _ lastseen.State) bool {
		_, ok := ws.load.settled(user, time.Now())
		return !ok
	})
	return states
}

// awaitExact waits until the watcher was told all up to a time, and compares that with states that are certain. It
// returns the number of users compared.
func (w *watcher) awaitExact(t testing.TB, states map[string]lastseen.State, upTo lastseen.Instant) (certain int) {
	t.Helper()
	await(t, w.name+" to be told all", func() (ok bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		certain, ok = w.view.checkExactly(states, upTo)
		return ok
	})
	return certain
}

// takeLags returns how long changes took to arrive at watchers that were connected, since the last call.
func (ws *watchers) takeLags() *feedLags {
	var all feedLags
	for _, w := range ws.all {
		w.mu.Lock()
		all.merge(&w.view.lags)
		w.view.lags = feedLags{}
		w.mu.Unlock()
	}
	return &all
}

// states looks up all users with an acknowledged write.
func (l *load) states(t testing.TB, server string) map[string]lastseen.State {
	t.Helper()
	users := l.names()
	slices.Sort(users)
	states := map[string]lastseen.State{}
	for chunk := range slices.Chunk(users, 500) {
		found, _ := lookUp(t, server, l.options.namespace, chunk)
		for _, user := range found.Users {
			state, err := user.state()
			require.NoError(t, err)
			states[user.User] = state
		}
	}
	return states
}
