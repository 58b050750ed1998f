package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// departuresTest is a job on a store in a file, on clocks that the test sets. The lease is the test's, because a store
// in a file grants each one.
type departuresTest struct {
	*Departures
	kit.Machine
	t       *testing.T
	yellow  time.Duration
	counted map[string]int
	refused bool // another server has the lease
	failure error
}

// departing is the store of a departuresTest.
type departing struct {
	store.Store
	d *departuresTest
}

func (s departing) Lease(context.Context, string, time.Duration) (bool, error) {
	return !s.d.refused, nil
}

func (s departing) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	if s.d.failure != nil {
		return nil, s.d.failure
	}
	return s.Store.Count(ctx, namespace, ranges)
}

func newDeparturesTest(t *testing.T) *departuresTest {
	d := &departuresTest{t: t, yellow: 5 * time.Minute, counted: map[string]int{}}
	// Each write is flushed before it returns: by the test's clock, a flush in the background could take hours.
	s := openFile(t, 0, d.Wall, d.Monotonic)
	d.Departures = NewDepartures(departing{s, d},
		func() map[string]time.Duration { return map[string]time.Duration{"chat": d.yellow} },
		func(namespace string, n int) { d.counted[namespace] += n }, slog.New(slog.DiscardHandler))
	d.monotonic = d.Monotonic
	return d
}

// pass lets time pass, with a round every 15 seconds.
func (d *departuresTest) pass(passed time.Duration) {
	d.t.Helper()
	for ; passed > 0; passed -= departuresEvery {
		d.Passed.Add(departuresEvery)
		require.NoError(d.t, d.round(d.t.Context()))
	}
}

// write records users as seen now by the store's clock.
func (d *departuresTest) write(
	do func(context.Context, string, []store.PresenceEvent) ([]lastseen.State, error), users ...string,
) {
	d.t.Helper()
	now := kit.Now(d.t, d.store)
	var batch []store.PresenceEvent
	for _, user := range users {
		batch = append(batch, store.PresenceEvent{User: user, At: now})
	}
	_, err := do(d.t.Context(), "chat", batch)
	require.NoError(d.t, err)
}

func (d *departuresTest) ping(users ...string) { d.t.Helper(); d.write(d.store.Ping, users...) }

func (d *departuresTest) requireCounted(want int) {
	d.t.Helper()
	require.Equal(d.t, want, d.counted["chat"])
}

// TestDepartures counts users once each time they turn grey, but not those who left, or turned grey before the start.
func TestDepartures(t *testing.T) {
	d := newDeparturesTest(t)
	d.ping("gone")
	d.Passed.Add(time.Hour)
	d.ping("a", "b", "goes")
	d.pass(time.Minute)
	d.ping("b")
	d.write(d.store.Leave, "goes")
	d.pass(4*time.Minute - departuresEvery)
	d.requireCounted(0)
	d.pass(departuresEvery)
	d.requireCounted(1) // a, just when the status turns grey
	d.pass(time.Minute)
	d.requireCounted(2)
	d.pass(time.Hour)
	d.requireCounted(2)
	d.ping("a")
	d.pass(time.Hour)
	d.requireCounted(3)
	require.Equal(t, map[string]int{"chat": 3}, d.counted)
}

// TestDeparturesWithAWrongClock: a clock that is set counts nobody twice, nor everyone at once.
func TestDeparturesWithAWrongClock(t *testing.T) {
	for _, wrong := range []time.Duration{time.Hour, -time.Hour, 1000 * time.Hour, -1000 * time.Hour} {
		t.Run(fmt.Sprint(wrong), func(t *testing.T) {
			d := newDeparturesTest(t)
			d.pass(time.Minute)
			d.ping("a", "b")
			d.pass(10 * time.Minute)
			d.requireCounted(2)
			d.ping("c", "d", "e")
			d.pass(time.Minute)
			d.Wrong.Set(wrong)
			d.pass(2 * time.Hour)
			before := d.counted["chat"]
			require.LessOrEqual(t, before, 5)
			d.Wrong.Set(0)
			d.pass(2 * time.Hour)
			require.LessOrEqual(t, d.counted["chat"], 5)
			d.ping("f")
			before = d.counted["chat"]
			d.pass(time.Hour)
			require.Equal(t, before+1, d.counted["chat"], "it counts again")
		})
	}
}

// TestDeparturesWithAnotherThreshold: a reload of the threshold counts nobody twice, nor everyone in between.
func TestDeparturesWithAnotherThreshold(t *testing.T) {
	d := newDeparturesTest(t)
	d.pass(time.Minute)
	d.ping("a")
	d.pass(10 * time.Minute)
	d.requireCounted(1)
	d.ping("b")
	d.yellow = time.Hour // a and b are yellow again
	d.pass(2 * time.Hour)
	d.requireCounted(2)
	d.ping("c", "d")
	d.pass(30 * time.Minute)
	d.yellow = 5 * time.Minute // c and d turn grey with the reload
	d.pass(time.Hour)
	d.requireCounted(2)
	d.ping("e")
	d.pass(time.Hour)
	d.requireCounted(3)
}

// TestDeparturesWithoutTheLease: what happens while another server holds it is counted there.
func TestDeparturesWithoutTheLease(t *testing.T) {
	d := newDeparturesTest(t)
	d.pass(time.Minute)
	d.ping("a")
	d.pass(4 * time.Minute)
	d.refused = true
	d.pass(2 * time.Minute) // 30 s of it until the lease is renewed
	d.refused = false
	d.pass(time.Hour)
	d.requireCounted(0)
	d.ping("b")
	d.pass(time.Hour)
	d.requireCounted(1)
}

// TestDeparturesAfterErrors: they are counted late, but not after a long time.
func TestDeparturesAfterErrors(t *testing.T) {
	d := newDeparturesTest(t)
	d.pass(time.Minute)
	for _, c := range []struct {
		failing time.Duration
		want    int
	}{{45 * time.Second, 1}, {2 * time.Minute, 1}} {
		d.ping("a")
		d.pass(5*time.Minute - departuresEvery)
		d.failure = errors.New("cannot count")
		d.pass(c.failing)
		d.failure = nil
		d.pass(time.Hour)
		d.requireCounted(c.want)
	}
}

// TestCountedWindows: windows overlap with what was counted at either end, in the middle, or not at all.
func TestCountedWindows(t *testing.T) {
	n := &departed{}
	r := func(from, to lastseen.Instant) lastseen.Range { return lastseen.Range{From: from, To: to} }
	n.add(r(10, 19))
	n.add(r(20, 29))
	n.add(r(50, 59))
	require.Equal(t, []lastseen.Range{r(10, 29), r(50, 59)}, n.counted)
	for _, overlapping := range []lastseen.Range{r(1, 99), r(1, 10), r(29, 40), r(12, 20), r(49, 50)} {
		require.True(t, n.overlaps(overlapping), overlapping)
	}
	for _, apart := range []lastseen.Range{r(1, 9), r(30, 49), r(60, 99)} {
		require.False(t, n.overlaps(apart), apart)
	}
	n.add(r(25, 55))
	require.Equal(t, []lastseen.Range{r(10, 59)}, n.counted)
	for i := range lastseen.Instant(2 * maxCounted) {
		n.add(r(100*i+100, 100*i+110))
	}
	require.Len(t, n.counted, maxCounted)
	require.True(t, n.overlaps(r(1600, 1610)), "the latest are kept")
}
