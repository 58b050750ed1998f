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
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

func phone(at lastseen.Instant) lastseen.Devices {
	return lastseen.Devices{Window: time.Minute, Left: base - 1, Records: []lastseen.DeviceRecord{
		{ID: "phone", Kind: lastseen.Mobile, Since: base, At: at, IdleSince: base + 1},
	}}
}

func TestRecord(t *testing.T) {
	var c changes
	c.Set("chat", "alice", lastseen.State{At: base})
	c.Set("chat", "bob", lastseen.State{At: lastseen.MaxInstant, Left: true})
	c.Set("other", "alice", lastseen.State{At: 1})
	c.Forget("chat", "bob")
	c.Drop("other")
	c.Set("other", "eve", lastseen.State{At: 2})
	c.Drop("never-was")
	c.In("empty")
	want := map[string]map[string]lastseen.State{"chat": {"alice": {At: base}}, "other": {"eve": {At: 2}}, "empty": {}}
	require.Equal(t, want, replayed(t, c.buf).states)
	require.Equal(t, want, replayed(t, c.buf, c.buf).states, "replaying twice ends as replaying once")
	for cut := range c.buf {
		_ = replayError(c.buf[:cut]) // must not panic
	}
}

func TestRecordOfDevices(t *testing.T) {
	var c changes
	for _, user := range []string{"alice", "bob", "carol", "dave", "eve"} {
		c.SetDevices("chat", user, lastseen.State{At: base}, phone(base), map[string]string{"phone": "{}"})
	}
	c.Set("chat", "alice", lastseen.State{At: base + 1})
	c.Forget("chat", "bob")
	c.Set("chat", "bob", lastseen.State{At: base + 2})
	c.SetDevices("chat", "carol", lastseen.State{At: base + 3, Left: true}, phone(base+3), nil)
	c.SetDevices("chat", "dave", lastseen.State{At: base + 4}, lastseen.Devices{}, nil)
	c.SetDevices("chat", "eve", lastseen.State{At: base}, phone(base), map[string]string{"phone": "[]"})
	c.SetDevices("other", "alice", lastseen.State{At: base}, phone(base), nil)
	c.Drop("other")
	said := map[string]string{"phone": "{}"}
	for _, runs := range [][][]byte{{c.buf}, {c.buf, c.buf}} {
		d := replayed(t, runs...)
		require.Equal(t, map[string]map[string]lastseen.State{"chat": {
			"alice": {At: base + 1}, "bob": {At: base + 2}, "carol": {At: base + 3, Left: true}, "dave": {At: base + 4},
			"eve": {At: base},
		}}, d.states)
		require.Equal(t, map[string]string{
			"chat/alice": fmt.Sprint(phone(base), said), "chat/carol": fmt.Sprint(phone(base+3), said),
			"chat/eve": fmt.Sprint(phone(base), map[string]string{"phone": "[]"}),
		}, d.devices)
	}
	for cut := range c.buf {
		_ = replayError(c.buf[:cut]) // must not panic
	}
}

// TestInvalidRecords: what no store writes is refused.
func TestInvalidRecords(t *testing.T) {
	const in = "n\x04chat"
	many := binary.AppendUvarint([]byte(in+"c\x01a"), store.MaxContacts+1)
	for i := range store.MaxContacts + 1 {
		many = packed.AppendString(many, fmt.Sprintf("%05d", i))
	}
	devices := func(window uint64, count int, ids string, gone byte) string {
		b := binary.AppendVarint([]byte(in+"v\x01a"), int64(base))
		b = binary.AppendUvarint(b, window)
		b = append(b, 0, byte(count))
		for _, id := range ids {
			b = append(append(packed.AppendString(b, string(id)), 0, 2, 2, 0), gone)
		}
		return string(b)
	}
	for _, run := range []string{
		in + "a\x01u\x04busy\x00\x00", in + "a\x01u\x00\x02\x01n", in + "h\x01u\x04\x00\x04\x01n",
		in + "h\x01u\x04\x01\x00\x00", in + "t\x01u", in + "e", in + "h\x01u\x00\x00\x00\x00",
		in + "c\x01a\x02\x01b\x01c\x01\x01d", devices(1, 2, "ab", 1), devices(1, 1, "a", 0) + "m\x01a\x02{}",
	} {
		require.NoError(t, replayError([]byte(run)), "%q", run)
	}
	for what, run := range map[string]string{
		"no namespace":          "a\x01u\x04busy\x00\x00",
		"no namespace to hide":  "h\x01u\x04\x00\x04\x01n",
		"no namespace to trim":  "t\x01u",
		"no namespace to empty": "e",
		"said to be invisible":  in + "a\x01u\x09invisible\x00\x00",
		"unknown":               in + "a\x01u\x04gone\x00\x00",
		"before time":           in + "a\x01u\x04busy\x01\x00",
		"beyond time":           in + "a\x01u\x04busy\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",
		"half a note":           in + "a\x01u\x04busy\x00\x02n",
		"no note":               in + "a\x01u\x04busy\x00",
		"hidden before time":    in + "h\x01u\x01\x00\x00\x00",
		"until before time":     in + "h\x01u\x04\x00\x01\x00",
		"neither ended nor not": in + "h\x01u\x04\x02\x00\x00",
		"half a hidden time":    in + "h\x01u\x04\x00",

		"contacts without a namespace":       "c\x01a\x01\x01b\x00",
		"contacts without an owner":          in + "c\x00\x01\x01b\x00",
		"contacts out of order":              in + "c\x01a\x02\x01c\x01b\x00",
		"a contact twice":                    in + "c\x01a\x02\x01b\x01b\x00",
		"a contact removed twice":            in + "c\x01a\x00\x02\x01b\x01b",
		"fewer contacts than counted":        in + "c\x01a\x00\x02\x01b",
		"contacts, of which none is removed": in + "c\x01a\x01\x01b",
		"too many contacts":                  string(append(many, 0)),
		"no use":                             in + "u\x01a",
		"negative use":                       in + "u\x01a\x01\x01\x01b\x00",

		"a window beyond time":        devices(math.MaxInt64/1_000_000+1, 0, "", 0),
		"too many devices":            devices(1, 33, "abcdefghijklmnopqrstuvwxyzABCDEFG", 0),
		"fewer devices than counted":  devices(1, 3, "ab", 0),
		"the same device twice":       devices(1, 2, "aa", 0),
		"neither gone nor there":      devices(1, 1, "a", 2),
		"devices without a namespace": devices(1, 1, "a", 0)[6:],
		"meta of no record":           devices(1, 1, "a", 0) + "m\x01b\x02{}",
		"meta of no user":             devices(1, 1, "a", 0) + in + "m\x01a\x02{}",
		"half a meta":                 devices(1, 1, "a", 0) + "m\x01a\x03{}",
		"devices active at no time":   devices(1, 1, "a", 0) + "v\x01b\x00\x00\x00\x00",
	} {
		require.ErrorIs(t, replayError([]byte(run)), ErrDamaged, what)
	}
}

// TestLongRun: a long run is cut into parts that can be replayed by themselves.
func TestLongRun(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	var c changes
	want, long := map[string]lastseen.State{}, strings.Repeat("x", 25_594)
	for n := range 3 * maxPart / 25_700 {
		user := fmt.Sprintf("%06d%s", n, long)
		c.Set("chat", user, lastseen.State{At: base})
		want[user] = lastseen.State{At: base}
	}
	require.Len(t, c.all(), 3)
	for _, part := range c.all() {
		require.Less(t, len(part), maxPayload)
	}
	require.Equal(t, want, replayed(t, c.all()...).states["chat"])
}

// FuzzReplay: what can be read can be written, and is read as the same.
func FuzzReplay(f *testing.F) {
	var c changes
	c.Set("chat", "alice", lastseen.State{At: base})
	c.Set("chat", "bob", lastseen.State{At: base, Left: true})
	c.SetDevices("chat", "carol", lastseen.State{At: base}, phone(base), map[string]string{"phone": "{}"})
	c.Drop("other")
	c.SetAvailability("chat", "alice", busy)
	c.Hide("chat", "dave", hiding)
	c.Trim("chat", "bob")
	c.Hide("unlisted", "eve", hiding)
	c.Unlist("unlisted")
	f.Add(c.buf)
	f.Add([]byte("s\x05alice\x02"))
	f.Fuzz(func(t *testing.T, run []byte) {
		tables, err := tablesOf(run)
		if err != nil {
			return
		}
		var again changes
		tables.Snapshot().Write(&again, func() bool { return true })
		require.Equal(t, dumpOf(tables), replayed(t, again.all()...))
	})
}
