package filestore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// plain returns the contents as maps, which can be compared.
func (c contents) plain() map[string]map[string]score {
	all := map[string]map[string]score{}
	for name, users := range c {
		all[name] = map[string]score{}
		for _, e := range users.all() {
			all[name][users.name(e)] = e.score
		}
	}
	return all
}

func TestRecord(t *testing.T) {
	var c changes
	c.set("chat", "alice", lastseen.State{At: base})
	c.set("chat", "bob", lastseen.State{At: lastseen.MaxInstant, Left: true})
	c.set("other", "alice", lastseen.State{At: 1})
	c.set("chat", "bob", lastseen.State{})
	c.drop("other")
	c.set("other", "eve", lastseen.State{At: 2})
	c.drop("never-was")
	c.in("empty")
	want := map[string]map[string]score{"chat": {"alice": score(base)}, "other": {"eve": 2}, "empty": {}}
	data := contents{}
	for range 2 {
		require.NoError(t, data.replay(c.buf))
		require.Equal(t, want, data.plain(), "replaying twice ends as replaying once")
	}
	for cut := range c.buf {
		_ = contents{}.replay(c.buf[:cut]) // must not panic
	}
}

// TestLongRun: a long run is cut into parts that can be replayed by themselves.
func TestLongRun(t *testing.T) {
	var c changes
	want, long := map[string]score{}, strings.Repeat("x", 25_594)
	for n := range 3 * maxPart / 25_700 {
		user := fmt.Sprintf("%06d%s", n, long)
		c.set("chat", user, lastseen.State{At: base})
		want[user] = score(base)
	}
	require.Len(t, c.all(), 3)
	data := contents{}
	for _, part := range c.all() {
		require.Less(t, len(part), maxPayload)
		require.NoError(t, data.replay(part))
	}
	require.Equal(t, want, data.plain()["chat"])
}

// FuzzReplay: what can be read can be written, and is read as the same.
func FuzzReplay(f *testing.F) {
	var c changes
	c.set("chat", "alice", lastseen.State{At: base})
	c.set("chat", "bob", lastseen.State{At: base, Left: true})
	c.drop("other")
	f.Add(c.buf)
	f.Add([]byte("s\x05alice\x02"))
	f.Fuzz(func(t *testing.T, run []byte) {
		data := contents{}
		if data.replay(run) != nil {
			return
		}
		var again changes
		for name, users := range data.plain() {
			again.in(name)
			for user, c := range users {
				again.set(name, user, c.state())
			}
		}
		copied := contents{}
		require.NoError(t, copied.replay(again.buf))
		require.Equal(t, data.plain(), copied.plain())
	})
}
