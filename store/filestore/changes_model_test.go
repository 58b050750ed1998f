package filestore

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// follower reads a feed and remembers what it was told.
type follower struct {
	places []store.Place
	told   map[string]store.Published
	at     time.Duration // when it had read everything
}

// feedModel plays writes, sweeps and clocks that are set, and compares what followers know with the store.
type feedModel struct {
	*Store
	machine   machine
	users     []string
	followers []*follower
	resets    bool // a reset is expected: the feed ended, or the clock was set back
	trimmed   bool // users may have been deleted silently
}

func (m *feedModel) now() lastseen.Instant {
	return base.Add(m.machine.passed.get() + m.machine.wrong.get())
}

// moment draws a time around that of the store's clock.
func (m *feedModel) moment(t *rapid.T) lastseen.Instant {
	seconds := rapid.SampledFrom([]int{0, 0, 1, 3, 59, 60, 61, 299, 300, 301, 4000, -3, -9}).Draw(t, "ago")
	return m.now().Add(-time.Duration(seconds) * time.Second)
}

func (m *feedModel) write(t *rapid.T) {
	write := m.Ping
	if rapid.Bool().Draw(t, "leave") {
		write = m.Leave
	}
	batch := make([]store.Sighting, rapid.IntRange(1, 3).Draw(t, "users"))
	for i := range batch {
		batch[i] = store.Sighting{User: rapid.SampledFrom(m.users).Draw(t, "user"), At: m.moment(t)}
	}
	_, err := write(context.Background(), "chat", batch)
	require.NoError(t, err)
}

func (m *feedModel) sweep(t *rapid.T) {
	for more := true; more; {
		w := &store.ChangesSweep{
			Namespace: "chat", Thresholds: minutes,
			Now: m.now().Add(time.Duration(rapid.IntRange(-3, 4).Draw(t, "ahead")) * time.Second),
		}
		m.SweepChanges(context.Background(), []*store.ChangesSweep{w})
		require.NoError(t, w.Err)
		require.True(t, m.resets || !w.Begun)
		more = w.More
	}
}

// read reads on and checks that each entry follows from what was told before.
func (m *feedModel) read(t *rapid.T, f *follower) {
	r := &store.ChangesRead{Namespace: "chat", After: f.places, Limit: rapid.IntRange(1, 4).Draw(t, "limit")}
	m.ReadChanges(context.Background(), []*store.ChangesRead{r})
	require.NoError(t, r.Err)
	now := m.machine.passed.get()
	if r.Reset {
		require.True(t, m.resets || now-f.at > store.ChangesKept)
		m.follow(t, f)
		return
	}
	for _, c := range r.Changes {
		was := f.told[c.User]
		require.Equal(t, was.Status, c.WasStatus, "%+v", c)
		if was.Known() && !m.trimmed { // a user who was never seen can leave silently
			require.Equal(t, was.Left, c.WasLeft, "%+v", c)
		}
		require.Equal(t, c.Forgotten(), !c.Known())
		f.told[c.User] = c.Published
	}
	f.places = r.Places
	if !r.More {
		f.at = now
	}
}

// follow begins with a snapshot.
func (m *feedModel) follow(t *rapid.T, f *follower) {
	snapshot, err := m.SnapshotChanges(context.Background(), "chat", m.users)
	require.NoError(t, err)
	f.places, f.told, f.at = snapshot.Places, map[string]store.Published{}, m.machine.passed.get()
	for i, user := range m.users {
		f.told[user] = snapshot.Users[i]
	}
}

// check reads to the end and compares with a snapshot.
func (m *feedModel) check(t *rapid.T) {
	for _, f := range m.followers {
		for places := []store.Place(nil); len(places) == 0 || places[0] != f.places[0]; {
			places = f.places
			m.read(t, f)
		}
		snapshot, err := m.SnapshotChanges(context.Background(), "chat", m.users)
		require.NoError(t, err)
		for i, user := range m.users {
			is := snapshot.Users[i]
			require.Equal(t, is.Status, f.told[user].Status, user)
			if is.Status != lastseen.Grey {
				require.Equal(t, is.Left, f.told[user].Left, user)
			}
		}
	}
}

// pass lets time pass, less than a feed lives, and perhaps sets the clock.
func (m *feedModel) pass(t *rapid.T) {
	m.machine.passed.add(time.Duration(rapid.SampledFrom([]int{0, 1, 30, 70, 400}).Draw(t, "pass")) * time.Second)
	if rapid.IntRange(0, 9).Draw(t, "set") == 0 {
		m.machine.wrong.set(time.Duration(rapid.IntRange(-5000, 5000).Draw(t, "wrong")) * time.Second)
		m.resets = true
	}
	for range 3 {
		m.machine.passed.add(10 * time.Second)
		_, err := m.Now(context.Background())
		require.NoError(t, err)
	}
	require.NoError(t, m.RecordChanges(context.Background(), "chat", minutes))
}

// erase forgets a user, trims, or deletes the namespace.
func (m *feedModel) erase(t *rapid.T) {
	ctx := context.Background()
	switch rapid.IntRange(0, 9).Draw(t, "how") {
	case 0:
		require.NoError(t, m.DeleteNamespace(ctx, "chat"))
		require.NoError(t, m.RecordChanges(ctx, "chat", minutes))
		m.resets = true
	case 1, 2, 3:
		q := store.TrimQuery{Age: minutes.Yellow, Now: m.now(), All: rapid.Bool().Draw(t, "all")}
		_, err := m.Trim(ctx, "chat", q)
		require.NoError(t, err)
		m.trimmed = true
	default:
		require.NoError(t, m.Forget(ctx, "chat", rapid.SampledFrom(m.users).Draw(t, "user")))
	}
}

// TestFeedModel: whatever happens, followers miss no change and see none twice, or get a reset.
func TestFeedModel(t *testing.T) {
	for name, sync := range map[string]time.Duration{"delayed": time.Hour, "immediate": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, runs := t.TempDir(), 0
			rapid.Check(t, func(t *rapid.T) {
				runs++
				m := &feedModel{users: []string{"a", "b", "c", "d", "e"}, followers: []*follower{{}, {}}}
				m.machine.passed.set(2 * time.Hour)
				s, err := Open(Options{
					Path: filepath.Join(dir, fmt.Sprint(runs)), Sync: sync, Logger: quiet(),
					Now:       func() time.Time { return time.UnixMilli(int64(m.now())) },
					Monotonic: m.machine.passed.get,
				})
				require.NoError(t, err)
				defer s.Close()
				m.Store = s
				require.NoError(t, s.RecordChanges(context.Background(), "chat", minutes))
				for _, f := range m.followers {
					m.follow(t, f)
				}
				t.Repeat(map[string]func(*rapid.T){
					"write": m.write, "write again": m.write, "sweep": m.sweep, "pass": m.pass, "erase": m.erase,
					"read": func(t *rapid.T) { m.read(t, m.followers[0]) }, "check": m.check,
				})
				m.check(t)
			})
		})
	}
}
