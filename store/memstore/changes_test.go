package memstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// minutes are the thresholds of these tests.
var minutes = lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}

// feedTest is a store with a feed in the namespace chat, on a machine whose clock the test sets.
type feedTest struct {
	*Store
	*kit.Machine
	t *testing.T
}

// newFeedTest begins the feed at base plus an hour.
func newFeedTest(t *testing.T, staged bool) *feedTest {
	t.Helper()
	m := &kit.Machine{}
	m.Passed.Set(time.Hour)
	f := &feedTest{opened(t, optionsOf(m), staged), m, t}
	f.record()
	return f
}

func (f *feedTest) record() {
	f.t.Helper()
	require.NoError(f.t, f.Register(context.Background(), []string{"chat"}))
	require.NoError(f.t, f.RecordChanges(context.Background(), "chat", minutes))
}

// pass lets time pass while somebody watches.
func (f *feedTest) pass(d time.Duration) {
	f.t.Helper()
	for end := f.Passed.Get() + d; f.Passed.Get() < end; {
		f.Passed.Set(min(end, f.Passed.Get()+store.ChangesKept/2))
		f.record()
	}
}

// set sets the machine's clock off by some time, and has the store notice it.
func (f *feedTest) set(wrong time.Duration) {
	f.t.Helper()
	f.Wrong.Set(wrong)
	for range 2 {
		f.Passed.Add(10 * time.Second)
		_, err := f.Now(context.Background())
		require.NoError(f.t, err)
	}
	now, err := f.Now(context.Background())
	require.NoError(f.t, err)
	require.Equal(f.t, f.Instant(), now)
}

func (f *feedTest) end() []store.Position {
	f.t.Helper()
	r := f.after(nil)
	require.NoError(f.t, r.Err)
	return r.Positions
}

func (f *feedTest) after(after []store.Position) *store.ChangesRead {
	r := &store.ChangesRead{Namespace: "chat", After: after, Limit: store.MaxChangesRead}
	f.ReadChanges(context.Background(), []*store.ChangesRead{r})
	return r
}

// texts returns the entries after a position as texts, such as "alice grey→green".
func (f *feedTest) texts(after []store.Position) (texts []string) {
	f.t.Helper()
	r := f.after(after)
	require.NoError(f.t, r.Err)
	require.False(f.t, r.Reset)
	for _, c := range r.Changes {
		text := c.User + " " + shown(c.WasStatus, c.WasLeft) + "→" + shown(c.Status, c.Left)
		if c.Forgotten() {
			text += " forgotten"
		}
		texts = append(texts, text)
	}
	return texts
}

func shown(s lastseen.Status, left bool) string {
	if left {
		return string(s) + " left"
	}
	return string(s)
}

func (f *feedTest) advance(now lastseen.Instant) *store.ChangesAdvance {
	return f.advanceAs(minutes, now)
}

func (f *feedTest) advanceAs(t lastseen.Thresholds, now lastseen.Instant) *store.ChangesAdvance {
	w := &store.ChangesAdvance{Namespace: "chat", Thresholds: t, Now: now}
	f.AdvanceChanges(context.Background(), []*store.ChangesAdvance{w})
	return w
}

func (f *feedTest) fill(prefix string, number int, at lastseen.Instant) {
	f.t.Helper()
	batch := make([]store.PresenceEvent, number)
	for i := range batch {
		batch[i] = store.PresenceEvent{User: fmt.Sprintf("%s%d", prefix, i), At: at}
	}
	_, err := f.Ping(context.Background(), "chat", batch)
	require.NoError(f.t, err)
}

// TestFeedOfForgetInOneFlush makes several writes at once.
func TestFeedOfForgetInOneFlush(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, false)
	now := f.Instant()
	ping(t, f.Store, "alice", now)
	begin := f.end()
	f.tables.mu.Lock()
	tx := f.tables.Stage(Discard())
	tx.forget(lastseen.UserKey{Namespace: "chat", User: "alice"})
	tx.set("chat", "alice", lastseen.State{At: now + 1})
	tx.set("chat", "new", lastseen.State{At: now})
	tx.forget(lastseen.UserKey{Namespace: "chat", User: "new"})
	tx.apply()
	f.tables.mu.Unlock()
	require.Equal(t, []string{"alice green→grey forgotten", "alice grey→green"}, f.texts(begin))
}

// followRing reads a ring from an entry on. Each entry must have its number as the user.
func followRing(t require.TestingT, r *ring, from uint64) (next uint64) {
	next = from
	for number, e := range r.from(from) {
		if number != next || string(e.user) != strconv.FormatUint(number, 10) {
			require.Fail(t, "not in order", "%s is number %d, after %d", e.user, number, next)
		}
		next++
	}
	return next
}

// TestRingModel compares a ring with the times of its entries.
func TestRingModel(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	rapid.Check(t, func(t *rapid.T) {
		var r ring
		var times []time.Duration
		now := time.Duration(0)
		for range rapid.IntRange(0, 40).Draw(t, "rounds") {
			now += time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second
			for range rapid.IntRange(0, 700).Draw(t, "entries") {
				r.append(strconv.Itoa(len(times)), event{}, detailed{}, now)
				times = append(times, now)
			}
			r.drop(now)
			require.EqualValues(t, len(times), r.next)
			if r.first > 0 {
				require.Greater(t, now-times[r.first-1], store.ChangesKept)
			}
			if r.first < r.next {
				require.LessOrEqual(t, now-times[r.first], store.ChangesKept+segmentSpan)
			}
			from := r.first + uint64(rapid.IntRange(0, int(r.next-r.first)).Draw(t, "from"))
			require.Equal(t, r.next, followRing(t, &r, from))
		}
	})
}

// TestRingIsBounded however many changes there are. The entries before the oldest one that is kept cannot be read.
func TestRingIsBounded(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	f := &feed{}
	f.begin(minutes, base)
	p := store.Published{State: lastseen.State{At: base}, Status: lastseen.Green}
	for n := range uint64(store.MaxChanges + 3*segmentLen/2) {
		f.append("alice", p, p, base, 0)
		if f.next != n+1 || f.next-f.first > store.MaxChanges {
			require.Fail(t, "too many", "%d to %d", f.first, f.next)
		}
	}
	require.GreaterOrEqual(t, f.next-f.first, uint64(store.MaxChanges-segmentLen))
	for number, reset := range map[uint64]bool{f.first - 1: true, f.first: false, f.next: false, f.next + 1: true} {
		r := &store.ChangesRead{After: []store.Position{f.position(number)}, Limit: 1}
		f.read(r)
		require.Equal(t, reset, r.Reset)
		require.Equal(t, number == f.first, len(r.Changes) == 1)
	}
	f.drop(store.ChangesKept + 1)
	require.Empty(t, f.segments)
	require.Equal(t, f.next, f.first)
}

// TestLooks: each published presence has its own look.
func TestLooks(t *testing.T) {
	var seen []look
	for _, status := range lastseen.Statuses() {
		for _, left := range []bool{false, true} {
			l := lookOf(store.Published{Status: status, State: lastseen.State{Left: left}})
			require.Equal(t, status, l.status())
			require.Equal(t, left, l.left())
			require.False(t, slices.Contains(seen, l))
			seen = append(seen, l)
		}
	}
}

// TestRingOfLongestUsers: their positions in a segment fit into what an entry has room for.
func TestRingOfLongestUsers(t *testing.T) {
	var r ring
	long := strings.Repeat("x", lastseen.MaxUserLen)
	for range 3 * segmentLen {
		r.append(long, event{}, detailed{}, 0)
	}
	n := 0
	for _, e := range r.from(0) {
		require.Equal(t, long, string(e.user))
		n++
	}
	require.Equal(t, 3*segmentLen, n)
}
