package filestore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// minutes are the thresholds of these tests.
var minutes = lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}

// feedTest is a store with a feed in the namespace chat, on a machine whose clock the test sets.
type feedTest struct {
	*Store
	*machine
	t *testing.T
}

// newFeedTest begins the feed at base plus an hour.
func newFeedTest(t *testing.T, sync time.Duration) *feedTest {
	t.Helper()
	m := &machine{}
	m.passed.set(time.Hour)
	o := m.options(t)
	o.Sync = sync
	f := &feedTest{open(t, o), m, t}
	f.record()
	return f
}

func (f *feedTest) record() {
	f.t.Helper()
	require.NoError(f.t, f.RecordChanges(context.Background(), "chat", minutes))
}

// time is the time by the machine's clock.
func (f *feedTest) time() lastseen.Instant { return base.Add(f.passed.get() + f.wrong.get()) }

// pass lets time pass while somebody watches.
func (f *feedTest) pass(d time.Duration) {
	f.t.Helper()
	for end := f.passed.get() + d; f.passed.get() < end; {
		f.passed.set(min(end, f.passed.get()+store.ChangesKept/2))
		f.record()
	}
}

func (f *feedTest) leave(user string, at lastseen.Instant) {
	f.t.Helper()
	_, err := f.Leave(context.Background(), "chat", []store.Sighting{{User: user, At: at}})
	require.NoError(f.t, err)
}

// set sets the machine's clock off by some time, and has the store notice it.
func (f *feedTest) set(wrong time.Duration) {
	f.t.Helper()
	f.wrong.set(wrong)
	for range 2 {
		f.passed.add(10 * time.Second)
		_, err := f.Now(context.Background())
		require.NoError(f.t, err)
	}
	now, err := f.Now(context.Background())
	require.NoError(f.t, err)
	require.Equal(f.t, f.time(), now)
}

func (f *feedTest) end() []store.Place {
	f.t.Helper()
	r := f.after(nil)
	require.NoError(f.t, r.Err)
	return r.Places
}

func (f *feedTest) after(after []store.Place) *store.ChangesRead {
	r := &store.ChangesRead{Namespace: "chat", After: after, Limit: store.MaxChangesRead}
	f.ReadChanges(context.Background(), []*store.ChangesRead{r})
	return r
}

// texts returns the entries after a place as texts, such as "alice grey→green".
func (f *feedTest) texts(after []store.Place) (texts []string) {
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

func (f *feedTest) sweep(now lastseen.Instant) *store.ChangesSweep {
	return f.sweepAs(minutes, now)
}

func (f *feedTest) sweepAs(t lastseen.Thresholds, now lastseen.Instant) *store.ChangesSweep {
	w := &store.ChangesSweep{Namespace: "chat", Thresholds: t, Now: now}
	f.SweepChanges(context.Background(), []*store.ChangesSweep{w})
	return w
}

// fill records many users at one time.
func (f *feedTest) fill(prefix string, number int, at lastseen.Instant) {
	f.t.Helper()
	batch := make([]store.Sighting, number)
	for i := range batch {
		batch[i] = store.Sighting{User: fmt.Sprintf("%s%d", prefix, i), At: at}
	}
	_, err := f.Ping(context.Background(), "chat", batch)
	require.NoError(f.t, err)
}

// TestFeedOfWrites: only what readers would see is in the feed, whether the index changes at once or after the flush.
func TestFeedOfWrites(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		f := newFeedTest(t, sync)
		now, begin := f.time(), f.end()
		ping(t, f.Store, "alice", now)
		ping(t, f.Store, "alice", now+1)
		f.leave("alice", now+1)
		f.leave("alice", now+2)
		f.leave("bob", now)
		ping(t, f.Store, "bob", now+1)
		ping(t, f.Store, "carol", now.Add(-2*time.Minute))
		ping(t, f.Store, "carol", now.Add(-3*time.Minute))
		ping(t, f.Store, "dave", now.Add(-time.Hour))
		ping(t, f.Store, "dave", now)
		require.Equal(t, []string{
			"alice grey→green", "alice green→grey left", "bob grey left→green", "carol grey→yellow", "dave grey→green",
		}, f.texts(begin))
		r := f.after(begin)
		require.Equal(t, lastseen.State{At: now}, r.Changes[0].State)
		require.Equal(t, now, r.Changes[0].Recorded)
		require.Equal(t, []store.Place{r.Changes[4].Place}, r.Places)
		require.Equal(t, f.texts(begin)[2:], f.texts([]store.Place{r.Changes[1].Place}))
		require.Equal(t, now, r.Watermark)
		require.False(t, r.More)
	}
}

// TestFeedOfForget: a user who is forgotten is in the feed even if they are back before the flush.
func TestFeedOfForget(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		f := newFeedTest(t, sync)
		ctx, now := context.Background(), f.time()
		ping(t, f.Store, "alice", now)
		f.leave("bob", now)
		begin := f.end()
		for _, user := range []string{"alice", "bob", "nobody"} {
			require.NoError(t, f.Forget(ctx, "chat", user))
		}
		require.Equal(t, []string{"alice green→grey forgotten", "bob grey left→grey forgotten"}, f.texts(begin))
	}
}

// TestFeedOfForgetInOneFlush makes the writes of one flush as the writer does with Sync zero.
func TestFeedOfForgetInOneFlush(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, time.Hour)
	now := f.time()
	ping(t, f.Store, "alice", now)
	begin := f.end()
	f.mu.Lock()
	tx := &transaction{
		index: &f.index, log: &changes{}, staged: map[userKey]lastseen.State{}, adds: map[string]struct{}{},
	}
	tx.forget(userKey{"chat", "alice"})
	tx.set("chat", "alice", lastseen.State{At: now + 1})
	tx.set("chat", "new", lastseen.State{At: now})
	tx.forget(userKey{"chat", "new"})
	tx.apply()
	f.mu.Unlock()
	require.Equal(t, []string{"alice green→grey forgotten", "alice grey→green"}, f.texts(begin))
}

// TestFeedOfLargeNamespace that becomes empty, and then has users again.
func TestFeedOfLargeNamespace(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, time.Hour)
	f.fill(strings.Repeat("x", 100), namesChunk/100, f.time().Add(-time.Hour))
	ctx, begin := context.Background(), f.end()
	_, err := f.Trim(ctx, "chat", store.TrimQuery{Age: time.Minute, Now: f.time(), All: true})
	require.NoError(t, err)
	require.Empty(t, truthOf(t, f.Store)["chat"])
	ping(t, f.Store, "alice", f.time())
	require.Equal(t, []string{"alice grey→green"}, f.texts(begin))
}

// TestFeedOfTrim: users are deleted silently, but not before the sweep has published them as grey.
func TestFeedOfTrim(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		f := newFeedTest(t, sync)
		ctx := context.Background()
		ping(t, f.Store, "old", f.time().Add(-5*time.Minute-time.Millisecond))
		ping(t, f.Store, "edge", f.time().Add(-5*time.Minute))
		ping(t, f.Store, "alice", f.time())
		begin := f.end()
		f.pass(time.Hour)
		trim := func() int {
			result, err := f.Trim(ctx, "chat", store.TrimQuery{Age: 5 * time.Minute, Now: f.time(), All: true})
			require.NoError(t, err)
			return result.Deleted
		}
		require.Equal(t, 1, trim())
		require.Empty(t, f.texts(begin))
		f.sweep(f.time())
		require.Equal(t, 2, trim())
		require.Equal(t, []string{"alice green→grey"}, f.texts(begin))
	}
}
