package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// reader is a client that keeps what it was sent, and reconnects to any hub.
type reader struct {
	t         *testing.T
	name      string
	everyone  bool
	users     []string
	watcher   *Watcher
	positions []store.Position
	view      map[string]Update // as sent
	again     map[string]int    // how often a user was sent without a difference
	paging    bool              // a snapshot of everyone is not complete
	resets    int
	parked    []parked
	changing  bool // a change may gather batches that cancel each other
}

// parked are users whom a reader does not watch any more, with what it knows of them.
type parked struct {
	positions []store.Position
	users     []string
	view      map[string]Update
}

// take checks a batch: a user who was sent already is newer and different, except in the pages of a
// snapshot. A user who is forgotten is sent once more. So may be changes before that, which one process does not show
// any more and another one, which has not read so far, does.
func (r *reader) take(b Batch, p *play) {
	require.NotEmpty(r.t, b.Positions)
	r.positions = b.Positions
	if b.Snapshot || b.Reset {
		clear(r.view)
		if b.Reset {
			r.resets++
		}
		r.paging = r.everyone
	}
	once := map[string]bool{}
	for _, u := range b.Users {
		require.False(r.t, once[u.User], "a user is twice in a batch")
		once[u.User] = true
		was, known := r.view[u.User]
		older := known && (u.At < was.At || u.At == was.At && !r.paging)
		same := known && u.Same(was.Published) && !r.paging && !r.changing
		if older || same {
			r.again[u.User]++
			require.LessOrEqual(r.t, r.again[u.User], 2*p.forgotten[u.User], "%s: %v after %v", r.name, u, was)
		}
		r.view[u.User] = u
	}
	_, _, r.paging = splitScan(b.Positions)
}

// TestReaders plays random changes, failures, resets and reconnections to two hubs on one store. Each reader ends with
// what is published, and is sent nothing twice, as long as it gets no reset.
func TestReaders(t *testing.T) {
	runs := testenv.Choose(60, 15)
	for seed := range runs {
		for _, shards := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d shards, seed %d", shards, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playReaders(t, shards, uint64(seed)) })
			})
		}
	}
}

type play struct {
	*fakeStore
	t         *testing.T
	random    *rand.Rand
	hubs      []*Hub
	readers   []*reader
	forgotten map[string]int
	broken    bool // the feed began again at some time, or was trimmed
	small     bool // memory
	slept     bool // for longer than entries are in memory
}

func playReaders(t *testing.T, shards int, seed uint64) {
	p := &play{
		fakeStore: newFakeStore(shards), t: t, random: rand.New(rand.NewPCG(seed, uint64(shards))),
		forgotten: map[string]int{},
	}
	for range 2 {
		h := New(Options{
			Store: p.fakeStore, Random: p.random.Float64, Logger: slog.New(slog.DiscardHandler),
			Settings: func(string) Settings { return Settings{Mode: Auto} },
		})
		p.small = seed%2 == 0
		if p.small {
			h.bounds = bounds{
				followed: 10,
				entries:  1 + p.random.IntN(20), allEntries: 1 + p.random.IntN(20), page: 1 + p.random.IntN(5),
				catchUp: 10_000,
			}
		}
		runHub(t, h)
		p.hubs = append(p.hubs, h)
	}
	for k := range 6 {
		r := &reader{t: t, name: fmt.Sprint("reader ", k), everyone: k < 2}
		r.view, r.again = map[string]Update{}, map[string]int{}
		for len(r.users) < 5 && !r.everyone {
			r.users = append(r.users, p.user())
		}
		p.readers = append(p.readers, r)
	}
	breaks := seed%3 == 0
	for range 400 {
		p.step(breaks)
	}
	p.fail(nil)
	for k := range p.readers {
		p.settle(k)
	}
}

func (p *play) user() string { return fmt.Sprint("user", p.random.IntN(12)) }

func (p *play) step(breaks bool) {
	switch n := p.random.IntN(44); {
	case n < 14:
		p.set(p.user(), lastseen.Statuses()[p.random.IntN(3)])
	case n == 14:
		user := p.user()
		p.forgotten[user]++
		p.forget(user)
	case n < 18:
		time.Sleep(time.Duration(p.random.IntN(400)) * time.Millisecond)
	case n == 18:
		for range p.random.IntN(60) {
			p.set(p.user(), lastseen.Statuses()[p.random.IntN(3)])
		}
	case n == 19 && breaks:
		p.broken = true
		p.beginAgain(p.random.IntN(2) == 0)
	case n == 20 && breaks:
		p.broken = true
		p.trim()
	case n == 21 && p.random.IntN(3) == 0:
		p.fail(store.ErrUnavailable)
		time.Sleep(time.Duration(p.random.IntN(400)) * time.Millisecond)
		p.fail(nil)
	case n == 22 && p.random.IntN(10) == 0:
		p.slept = true
		time.Sleep(2 * time.Minute) // followers without watchers end
	case n < 27:
		p.describe()
	default:
		p.read(p.random.IntN(len(p.readers)))
	}
}

// describe has a user set an availability, or nothing, or become idle. An entry of a user without a state is read like
// one of a user who is forgotten.
func (p *play) describe() {
	user := p.user()
	d := []store.Details{
		{},
		{},
		{IdleSince: 7},
		{Availability: lastseen.AvailabilityState{Availability: lastseen.Busy}},
		{Availability: lastseen.AvailabilityState{Availability: lastseen.Away, Note: "lunch", Until: 9}, IdleSince: 7},
	}[p.random.IntN(5)]
	if !p.fakeStore.describe(user, d) {
		p.forgotten[user]++
	}
}

// read has a reader do something.
func (p *play) read(k int) {
	r := p.readers[k]
	if r.watcher != nil && p.random.IntN(4) == 0 {
		r.watcher.Close()
		r.watcher = nil
	}
	if r.watcher == nil {
		p.connect(r)
		return
	}
	limit := []int{1, 2, 3, 1000}[p.random.IntN(4)]
	switch p.random.IntN(5) {
	case 0:
		b, err := r.watcher.Poll(p.t.Context(), limit)
		p.got(k, b, err)
	case 1:
		if b, ok := r.watcher.Tick(); ok {
			require.Empty(p.t, b.Users)
			r.positions = b.Positions
		}
	case 2:
		if !r.everyone {
			p.change(k)
		}
	case 3:
		if b, ok, _, err := r.watcher.Next(p.t.Context(), limit); ok || err != nil {
			p.got(k, b, err)
		}
	default:
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Duration(p.random.IntN(500))*time.Millisecond)
		defer cancel()
		b, err := await(ctx, r.watcher, limit)
		p.got(k, b, err)
	}
}

func (p *play) connect(r *reader) {
	q := Query{Users: r.users, Everyone: r.everyone, After: r.positions}
	w, err := p.hubs[p.random.IntN(2)].Watch(p.t.Context(), "chat", q)
	if err == nil {
		r.watcher = w
	}
}

func (p *play) got(k int, b Batch, err error) {
	if err != nil {
		require.True(p.t, errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded), err)
		return
	}
	p.readers[k].take(b, p)
}

// settle lets a reader take everything, and compares.
func (p *play) settle(k int) {
	r := p.readers[k]
	time.Sleep(time.Second)
	if r.watcher == nil {
		p.connect(r)
	}
	for quiet := 0; quiet < 2; {
		b, err := r.watcher.Poll(p.t.Context(), 1000)
		require.NoError(p.t, err)
		p.got(k, b, nil)
		if quiet++; len(b.Users) > 0 || b.More {
			quiet = 0
		}
		time.Sleep(time.Second)
	}
	for n := range 12 {
		user := fmt.Sprint("user", n)
		published := p.state(user)
		want := viewOf(published.Status, published.Left, published.Details)
		update, sent := r.view[user]
		require.True(p.t, !sent || r.everyone || slices.Contains(r.users, user), "%s is not watched", user)
		got := viewOf(update.Status, update.Left, update.Details)
		if !sent && !r.everyone {
			continue
		}
		require.Equal(p.t, want, got, "%s of %s", user, r.name)
	}
	tooSlow := r.everyone && (p.slept || p.small)
	if !p.broken && !tooSlow {
		require.Zero(p.t, r.resets, r.name)
	}
	r.watcher.Close()
}
