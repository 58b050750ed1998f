package filestore

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
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

// plainDevices returns the devices of all users who have any, as texts.
func (c contents) plainDevices() map[string]string {
	all := map[string]string{}
	for name, users := range c {
		for _, e := range users.all() {
			if k := knownOf(users, users.name(e)); !isZero(k.Devices) {
				all[name+"/"+users.name(e)] = fmt.Sprint(k)
			}
		}
	}
	return all
}

// phone returns the devices of a user with one record.
func phone(at lastseen.Instant) lastseen.Devices {
	return lastseen.Devices{Window: time.Minute, Left: base - 1, Records: []lastseen.DeviceRecord{
		{ID: "phone", Kind: lastseen.Mobile, Since: base, At: at, IdleSince: base + 1},
	}}
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

func TestRecordOfDevices(t *testing.T) {
	var c changes
	for _, user := range []string{"alice", "bob", "carol", "dave", "eve"} {
		c.setDevices("chat", user, lastseen.State{At: base}, phone(base), map[string]string{"phone": "{}"})
	}
	c.set("chat", "alice", lastseen.State{At: base + 1})
	c.set("chat", "bob", lastseen.State{})
	c.set("chat", "bob", lastseen.State{At: base + 2})
	c.setDevices("chat", "carol", lastseen.State{At: base + 3, Left: true}, phone(base+3), nil)
	c.setDevices("chat", "dave", lastseen.State{At: base + 4}, lastseen.Devices{}, nil)
	c.setDevices("chat", "eve", lastseen.State{At: base}, phone(base), map[string]string{"phone": "[]"})
	c.setDevices("other", "alice", lastseen.State{At: base}, phone(base), nil)
	c.drop("other")
	data, said := contents{}, map[string]string{"phone": "{}"}
	for range 2 {
		require.NoError(t, data.replay(c.buf))
		require.Equal(t, map[string]map[string]score{"chat": {
			"alice": score(base + 1), "bob": score(base + 2), "carol": -score(base + 3), "dave": score(base + 4),
			"eve": score(base),
		}}, data.plain())
		require.Equal(t, map[string]string{
			"chat/alice": fmt.Sprint(known{phone(base), said}), "chat/carol": fmt.Sprint(known{phone(base + 3), said}),
			"chat/eve": fmt.Sprint(known{phone(base), map[string]string{"phone": "[]"}}),
		}, data.plainDevices())
	}
	for cut := range c.buf {
		_ = contents{}.replay(c.buf[:cut]) // must not panic
	}
}

// TestInvalidDevices: what no store writes is refused.
func TestInvalidDevices(t *testing.T) {
	devices := func(window uint64, count int, ids string, gone byte) []byte {
		b := binary.AppendVarint([]byte("n\x04chatv\x01a"), int64(base))
		b = binary.AppendUvarint(b, window)
		b = append(b, 0, byte(count))
		for _, id := range ids {
			b = append(append(appendString(b, string(id)), 0, 2, 2, 0), gone)
		}
		return b
	}
	require.NoError(t, contents{}.replay(devices(1, 2, "ab", 1)))
	require.NoError(t, contents{}.replay(append(devices(1, 1, "a", 0), "m\x01a\x02{}"...)))
	for what, run := range map[string][]byte{
		"a window beyond time":   devices(math.MaxInt64/1_000_000+1, 0, "", 0),
		"too many records":       devices(1, 33, "abcdefghijklmnopqrstuvwxyzABCDEFG", 0),
		"fewer than counted":     devices(1, 3, "ab", 0),
		"the same record twice":  devices(1, 2, "aa", 0),
		"neither gone nor there": devices(1, 1, "a", 2),
		"no namespace":           devices(1, 1, "a", 0)[6:],
		"meta of no record":      append(devices(1, 1, "a", 0), "m\x01b\x02{}"...),
		"meta of no user":        append(devices(1, 1, "a", 0), "n\x04chatm\x01a\x02{}"...),
		"half a meta":            append(devices(1, 1, "a", 0), "m\x01a\x03{}"...),
		"at no time":             append(devices(1, 1, "a", 0), "v\x01b\x00\x00\x00\x00"...),
	} {
		require.ErrorIs(t, contents{}.replay(run), ErrDamaged, what)
	}
}

// TestLongRun: a long run is cut into parts that can be replayed by themselves.
func TestLongRun(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
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
	c.setDevices("chat", "carol", lastseen.State{At: base}, phone(base), map[string]string{"phone": "{}"})
	c.drop("other")
	c.say("chat", "alice", busy)
	c.hide("chat", "dave", hiding)
	c.trim("chat", "bob")
	c.hide("unlisted", "eve", hiding)
	c.unlist("unlisted")
	f.Add(c.buf)
	f.Add([]byte("s\x05alice\x02"))
	f.Fuzz(func(t *testing.T, run []byte) {
		data := contents{}
		if data.replay(run) != nil {
			return
		}
		again := snapshotOf(data)
		copied := contents{}
		require.NoError(t, copied.replay(again.buf))
		require.Equal(t, data.plain(), copied.plain())
		require.Equal(t, data.plainDevices(), copied.plainDevices())
		require.Equal(t, data.plainPeople(), copied.plainPeople())
	})
}

// snapshotOf returns changes that have everything in contents.
func snapshotOf(data contents) (all changes) {
	for name, users := range data.plain() {
		all.in(name)
		for user, c := range users {
			if k := knownOf(data[name], user); isZero(k.Devices) {
				all.set(name, user, c.state())
			} else {
				all.setDevices(name, user, c.state(), k.Devices, k.said)
			}
		}
		if p := data[name].people; !p.empty() {
			p.freeze().scan(&all, name, func() bool { return true })
		}
		if data[name].unlisted {
			all.unlist(name)
		}
	}
	return all
}
