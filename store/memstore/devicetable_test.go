package memstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// known is what is known of the devices of a user: the devices, and what clients said about each.
type known struct {
	lastseen.Devices
	said map[string]string
}

func knownOf(u *users, user string) known {
	d, said := u.devicesOf(user)
	k := known{Devices: d, said: map[string]string{}}
	for i, text := range said {
		if text != "" {
			k.said[d.Records[i].ID] = text
		}
	}
	return k
}

func drawDevices(t *rapid.T) lastseen.Devices {
	d := lastseen.Devices{
		Window: time.Duration(rapid.IntRange(0, 1000).Draw(t, "window")) * time.Millisecond,
		Left:   lastseen.Instant(rapid.IntRange(0, 1).Draw(t, "left")) * base,
	}
	ids := []string{"a", "b", "c", strings.Repeat("d", 73)}
	for _, id := range ids[:rapid.IntRange(0, len(ids)).Draw(t, "records")] {
		at := base + lastseen.Instant(rapid.IntRange(0, 200).Draw(t, "at"))
		d.Records = append(d.Records, lastseen.DeviceRecord{
			ID: id, Kind: rapid.SampledFrom(lastseen.DeviceKinds()).Draw(t, "kind"), Since: at - 1, At: at,
			Gone: rapid.Bool().Draw(t, "gone"), IdleSince: rapid.SampledFrom([]lastseen.Instant{0, at}).Draw(t, "idle"),
		})
	}
	if isZero(d) {
		return lastseen.Devices{}
	}
	return d
}

// TestDeviceTable does the same to a table and to a map. What a freeze saw can be read until the next one, and what is
// counted is what the map takes.
func TestDeviceTable(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	rapid.Check(t, func(t *rapid.T) {
		u, want := newUsers(), map[string]known{}
		names := []string{"alice", "bob", strings.Repeat("x", 200)}
		var frozen *deviceTable
		seen := map[packed.Ref]string{}
		user := rapid.SampledFrom(names)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				name, d := user.Draw(t, "user"), drawDevices(t)
				u.set(name, packed.Score(base))
				now := known{d, map[string]string{}}
				for _, r := range d.Records {
					if said, ok := want[name].said[r.ID]; ok {
						now.said[r.ID] = said
					}
				}
				meta := map[string]string{}
				for _, r := range d.Records {
					if rapid.IntRange(0, 3).Draw(t, "says") == 0 {
						meta[r.ID] = strings.Repeat("m", rapid.IntRange(1, 1024).Draw(t, "meta"))
						now.said[r.ID] = meta[r.ID]
					}
				}
				u.setDevices(name, d, meta)
				want[name] = now
			},
			"remove": func(t *rapid.T) {
				name := user.Draw(t, "user")
				u.remove(name)
				delete(want, name)
			},
			"freeze": func(*rapid.T) {
				u.names.Freeze()
				frozen, seen = u.devices.freeze(), map[packed.Ref]string{}
				for _, e := range u.all() {
					seen[e.name] = fmt.Sprint(knownOf(u, u.name(e)))
				}
			},
			"": func(t *rapid.T) {
				again := newUsers()
				for name, k := range want {
					require.Equal(t, fmt.Sprint(k), fmt.Sprint(knownOf(u, name)))
					again.set(name, packed.Score(base))
					again.setDevices(name, k.Devices, k.said)
				}
				require.Equal(t, again.bytes, u.bytes)
				for p, text := range seen {
					if frozen == nil {
						continue
					}
					d, said := frozen.read(p)
					k := known{d, map[string]string{}}
					for i, s := range said {
						if s != "" {
							k.said[d.Records[i].ID] = s
						}
					}
					require.Equal(t, text, fmt.Sprint(k))
				}
			},
		})
		for _, name := range names {
			u.remove(name)
		}
		require.Zero(t, u.bytes)
		require.True(t, u.devices == nil || u.devices.byUser.Len() == 0)
	})
}

// TestDeviceTableReusesSlots: devices that are recorded over and over take no more memory in the end, once a compaction
// has begun.
func TestDeviceTableReusesSlots(t *testing.T) {
	u := newUsers()
	u.set("alice", packed.Score(base))
	most, last := packed.Ref(0), packed.Ref(0) // of the references to texts
	for round := range lastseen.Instant(10) {
		for n := range lastseen.Instant(100) {
			at := base + 1000*round + n
			u.setDevices("alice", lastseen.Devices{Window: time.Minute, Records: []lastseen.DeviceRecord{
				{ID: "a", Kind: lastseen.Web, Since: base, At: at}, {ID: "b", Kind: lastseen.Web, Since: base, At: at - 1},
			}}, map[string]string{"a": `{"app":"chat"}`})
			text, _ := u.devices.byUser.Get(packed.Ref(1))
			last = max(last, text)
		}
		u.devices.freeze()
		if round == 0 {
			most = last
		}
		require.LessOrEqual(t, last, most+100, "a round takes the slots of the one before")
	}
}
