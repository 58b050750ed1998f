package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

// TestRealStore has watchers follow pings and leaves on the embedded store, while they reconnect between two hubs. Each
// ends with what the store holds.
func TestRealStore(t *testing.T) {
	s, err := filestore.Open(filestore.Options{Path: filepath.Join(t.TempDir(), "lastseen.db")})
	require.NoError(t, err)
	thresholds := lastseen.Thresholds{Green: time.Hour, Yellow: 2 * time.Hour}
	hubs := []*Hub{}
	for range 2 {
		h := New(Options{Store: s, Settings: func(string) Settings { return Settings{Thresholds: thresholds} }})
		runHub(t, h)
		hubs = append(hubs, h)
	}
	t.Cleanup(func() { s.Close() })

	users := []string{}
	for k := range 40 {
		users = append(users, fmt.Sprint("user", k))
	}
	var running sync.WaitGroup
	var written atomic.Bool
	for k := range 8 {
		running.Go(func() { followToTheEnd(t, hubs, users[4*k:4*k+4], &written) })
	}
	for k := range 4 {
		running.Go(func() { changeToTheEnd(t, hubs[k%2], users[:32], &written, uint64(k)) })
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		write := s.Ping
		if random.IntN(2) == 0 {
			write = s.Leave
		}
		at := lastseen.InstantOf(time.Now())
		_, err := write(t.Context(), "chat", []store.Sighting{{User: users[random.IntN(32)], At: at}})
		require.NoError(t, err)
	}
	for _, user := range users { // later than all before
		at := lastseen.InstantOf(time.Now()).Add(2 * time.Second)
		_, err := s.Leave(t.Context(), "chat", []store.Sighting{{User: user, At: at}})
		require.NoError(t, err)
		_, err = s.Ping(t.Context(), "chat", []store.Sighting{{User: user, At: at + 1}})
		require.NoError(t, err)
	}
	written.Store(true)
	running.Wait()
}

// followToTheEnd follows users, by ever new watchers, until everything is written and
// all are green, as they are in the end.
func followToTheEnd(t *testing.T, hubs []*Hub, users []string, written *atomic.Bool) {
	view := map[string]Update{}
	var places []store.Place
	deadline := time.Now().Add(time.Minute)
	for n := 0; ; n++ {
		w, err := hubs[n%2].Watch(t.Context(), "chat", Query{Users: users, After: places})
		if err != nil {
			t.Error(err)
			return
		}
		for range 1 + n%3 {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			b, err := w.Next(ctx, 1+n%4)
			cancel()
			if err != nil {
				continue
			}
			if b.Reset {
				t.Error("reset")
			}
			places = b.Places
			for _, u := range b.Users {
				if was, ok := view[u.User]; ok && was.Same(u.Published) {
					t.Errorf("told again: %v after %v", u, was)
				}
				view[u.User] = u
			}
		}
		w.Close()
		if written.Load() && allGreen(view, users) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("not the end: %v", view)
			return
		}
	}
}

// changeToTheEnd has one watcher change which users it watches, until everything is written and all are green.
func changeToTheEnd(t *testing.T, h *Hub, users []string, written *atomic.Bool, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 3))
	w, err := h.Watch(t.Context(), "chat", Query{})
	if err != nil {
		t.Error(err)
		return
	}
	defer w.Close()
	view, watched := map[string]Update{}, map[string]struct{}{}
	take := func(b Batch) {
		for _, u := range b.Users {
			if was, ok := view[u.User]; ok && was.At > u.At {
				t.Errorf("older: %v after %v", u, was)
			}
			if _, ok := watched[u.User]; !ok || b.Reset {
				t.Errorf("not watched, or a reset: %v", u)
			}
			view[u.User] = u
		}
	}
	for deadline := time.Now().Add(time.Minute); !t.Failed() && time.Now().Before(deadline); {
		var c Change
		ends := written.Load()
		for range random.IntN(5) {
			c.Remove = append(c.Remove, users[random.IntN(len(users))])
			c.Add = append(c.Add, users[random.IntN(len(users))])
		}
		if ends {
			c = Change{Add: users}
		}
		b, err := w.Change(t.Context(), c)
		if err != nil {
			t.Error(err)
			return
		}
		for _, user := range c.Remove {
			delete(view, user)
			delete(watched, user)
		}
		for _, user := range c.Add {
			watched[user] = struct{}{}
		}
		take(b)
		if ends && allGreen(view, users) {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if b, err := w.Next(ctx, 1+random.IntN(10)); err == nil {
			take(b)
		}
		cancel()
	}
	t.Errorf("not the end: %v", view)
}

func allGreen(view map[string]Update, users []string) bool {
	for _, user := range users {
		if view[user].Status != lastseen.Green {
			return false
		}
	}
	return true
}

// BenchmarkWatcher measures the memory of a watcher of 50 users whom few others watch.
func BenchmarkWatcher(b *testing.B) {
	s := newFakeStore(1)
	h := New(Options{Store: s, Settings: func(string) Settings { return Settings{} }})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go h.Run(ctx)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	watchers := []*Watcher{}
	for n := 0; b.Loop(); n++ {
		users := make([]string, 50)
		for k := range users {
			users[k] = fmt.Sprintf("user-%08d", (n*50+k*7919)%1_000_000)
		}
		w, err := h.Watch(ctx, "chat", Query{Users: users})
		require.NoError(b, err)
		for range 2 {
			_, err = w.Poll(ctx, 100)
			require.NoError(b, err)
		}
		watchers = append(watchers, w)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(watchers)), "B/watcher")
	for _, w := range watchers {
		w.Close()
	}
}

// BenchmarkEntries measures taking entries from the store, of a million users, with 5,000 watchers of 50 each.
func BenchmarkEntries(b *testing.B) {
	h := New(Options{Store: newFakeStore(1), Settings: func(string) Settings { return Settings{} }})
	f := newFollower(h, "chat")
	f.begun, f.m = true, newMemory([]store.Place{"0"})
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		w := &Watcher{hub: h, f: f, wake: make(chan struct{}, 1)}
		for range 50 {
			w.users = append(w.users, fmt.Sprint("user", random.IntN(1_000_000)))
		}
		require.True(b, w.attach(f.m.places))
	}
	names := make([]string, 1_000_000)
	for k := range names {
		names[k] = fmt.Sprint("user", k)
	}
	n := 0
	for b.Loop() {
		r := &store.ChangesRead{Watermark: 1}
		for range 500 {
			n++
			place := store.Place(fmt.Sprint(n))
			r.Changes = append(r.Changes, store.Change{
				User: names[random.IntN(len(names))], Place: place, WasStatus: lastseen.Grey, Recorded: 1,
				Published: store.Published{State: lastseen.State{At: 1}, Status: lastseen.Green},
			})
			r.Places = []store.Place{place}
		}
		f.endRead(r)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/entry")
	b.ReportMetric(float64(h.entries.Load()), "entries")
}
