package filestore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// fileOfVersion2 is a data file with devices in its snapshot and its log, not closed. Every later version has to read
// it, see TestFileOfVersion2.
const fileOfVersion2 = "6c6173747365656e000000027f6e6e5e00000000000000ee8eea2d00000000c618d4a3ceb8bad7b36e04636861747605616c" +
	"69636580a0abfef962e0d4030001057461627e300377656280a0abfef96280a0abfef962fe9fabfef962006d057461627e30097b2261" +
	"7070223a317d7603626f6280a0abfef962e0d40300010570686f6e650377656280a0abfef96280a0abfef962000076056361726f6c80" +
	"a0abfef962e0d403000101780377656280a0abfef96280a0abfef96200007604676f6e6580a0abfef962e0d403000101780377656280" +
	"a0abfef96280a0abfef96200007305706c61696e80a0abfef9620000008462ab13558ca469a86e04636861747603626f6289a0abfef9" +
	"62e0d40300010570686f6e650377656280a0abfef9628aa0abfef96200016d0570686f6e65027b7d7605616c69636582a0abfef962e0" +
	"d4030002057461627e310377656282a0abfef96282a0abfef962fe9fabfef96200057461627e300377656280a0abfef96280a0abfef9" +
	"62fe9fabfef96200000000313c1924ed916f99a36e046368617476056361726f6c8da0abfef962e0d4038ea0abfef962010178037765" +
	"6280a0abfef96280a0abfef96200010000000cf721ef8a9971dbbe6e04636861746604676f6e65"

// openText opens a store on a file with the content that hexadecimal digits stand for.
func openText(t *testing.T, text string) *Store {
	t.Helper()
	data, err := hex.DecodeString(text)
	require.NoError(t, err)
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return open(t, Options{Path: path})
}

func TestFileOfVersion2(t *testing.T) {
	s := openText(t, fileOfVersion2)
	require.Equal(t, truth{"chat": {
		"alice": {At: base + 1}, "bob": {At: base + 5, Left: true}, "carol": {At: base + 7, Left: true},
		"plain": {At: base},
	}}, truthOf(t, s))
	record := func(id string, since, at, idle lastseen.Instant, gone bool) lastseen.DeviceRecord {
		return lastseen.DeviceRecord{ID: id, Kind: lastseen.Web, Since: since, At: at, IdleSince: idle, Gone: gone}
	}
	for user, want := range map[string]store.UserDevices{
		"alice": {
			Devices: lastseen.Devices{Window: time.Minute, Records: []lastseen.DeviceRecord{
				record("tab~1", base+1, base+1, base-1, false), record("tab~0", base, base, base-1, false),
			}},
			Meta: []string{"", `{"app":1}`},
		},
		"bob": {
			Devices: lastseen.Devices{Window: time.Minute, Records: []lastseen.DeviceRecord{
				record("phone", base, base+5, 0, true),
			}},
			Meta: []string{"{}"},
		},
		"carol": {
			Devices: lastseen.Devices{Window: time.Minute, Left: base + 7, Records: []lastseen.DeviceRecord{
				record("x", base, base, 0, true),
			}},
			Meta: []string{""},
		},
		"gone":  {},
		"plain": {},
	} {
		got := devices.Of(t, s, user)
		want.State = truthOf(t, s)["chat"][user]
		require.Equal(t, want, got)
	}
}

func versionOf(t testing.TB, s *Store) uint32 {
	t.Helper()
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	version, err := readVersion(bytes.NewReader(data))
	require.NoError(t, err)
	return version
}

// older returns the formats of a lastseen that knows no later version.
func older(version uint32) formats {
	k := supported()
	k.current = version
	return k
}

// TestVersionRises: the first device, thing said or contact raises the version of the file, and nothing that changes
// nothing does. A lastseen that does not know of it opens the file before, and refuses it then.
func TestVersionRises(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, c := range map[string]struct {
		before, after uint32
		same, rises   func(*Store) error
	}{
		"devices": {version1, version2, pingOf("alice", base), devicesOf("chat", devices.On("alice", "a", base))},
		"said": {version2, version3, func(s *Store) error {
			return errors.Join(
				devicesOf("chat", devices.On("alice", "a", base))(s), sayOf("alice", lastseen.AvailabilityState{})(s))
		}, sayOf("alice", busy)},
		"contacts": {version1, version3, func(s *Store) error {
			none := s.SetContacts(ctx, "chat", "alice", nil)
			return errors.Join(none, s.ChangeContacts(ctx, "chat", "alice", nil, []string{"bob"}), forgetOf("alice")(s))
		}, func(s *Store) error { return s.SetContacts(ctx, "chat", "alice", []string{"bob"}) }},
	} {
		for _, sync := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(name, sync), func(t *testing.T) {
				t.Parallel()
				o := Options{Path: newPath(t), Sync: sync, Logger: quiet()}
				s := open(t, o)
				require.NoError(t, c.same(s))
				flushed(t, s)
				require.NoError(t, compactNow(s))
				require.NoError(t, s.Close())
				before, err := openWith(older(c.before), o)
				require.NoError(t, err)
				require.NoError(t, before.Close())
				s = open(t, o)
				require.Equal(t, c.before, versionOf(t, s))
				require.NoError(t, c.rises(s))
				flushed(t, s)
				for range 3 { // with it, compacted, and after it was deleted
					require.Equal(t, c.after, versionOf(t, s))
					require.NoError(t, Verify(backup(t, s)))
					require.NoError(t, s.Close())
					_, err = openWith(older(c.before), o)
					require.ErrorIs(t, err, ErrNewer)
					s = open(t, o)
					require.NoError(t, compactNow(s))
					require.NoError(t, s.Forget(ctx, "chat", "alice"))
				}
			})
		}
	}
}

// TestVersionOfCompaction: a compaction that began before the first device was recorded, and one whose snapshot has a
// device that is not in the log yet.
func TestVersionOfCompaction(t *testing.T) {
	t.Parallel()
	t.Run("log", func(t *testing.T) {
		s := open(t, Options{Path: newPath(t), Sync: 0})
		ping(t, s, "alice", base)
		s.writer.log.busy.Store(true) // keeps the writer from compacting; see compactNow
		defer s.writer.log.busy.Store(false)
		s.writer.mu.Lock()
		frozen, from := s.tables.Snapshot(), s.writer.log.end
		s.writer.mu.Unlock()
		recordDevices(t, s, devices.On("alice", "a", base))
		require.NoError(t, s.writer.log.compact(frozen, from))
		require.Equal(t, uint32(version2), versionOf(t, s))
		require.NoError(t, s.Close())
		require.Contains(t, devicesIn(t, open(t, Options{Path: s.Path()}), "alice")[0], "{a other ")
	})
	t.Run("snapshot", func(t *testing.T) {
		s, g := opened(t, time.Hour)
		t.Cleanup(func() { close(g.open) })
		recordDevices(t, s, devices.On("alice", "a", base))
		<-g.entered // held up before it is in the log
		require.NoError(t, compactNow(s))
		require.Equal(t, uint32(version2), versionOf(t, s))
		require.Contains(t, inFile(t, s)["chat"], "alice")
	})
}

// TestVersionCannotRise: without the version, no device is written.
func TestVersionCannotRise(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	ping(t, s, "alice", base)
	fsync := s.writer.log.fsync
	var fails atomic.Bool
	fails.Store(true)
	s.writer.log.fsync = func(f *os.File) error {
		if fails.Load() {
			return errors.New("broken")
		}
		return fsync(f)
	}
	size := sizeOf(t, s)
	_, err := s.RecordDevices(context.Background(), "chat", time.Minute,
		[]store.DeviceEvent{devices.On("alice", "a", base)})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Equal(t, size, sizeOf(t, s))
	s.writer.log.mu.Lock()
	require.Equal(t, uint32(version1), s.writer.log.header.version)
	s.writer.log.mu.Unlock()
	fails.Store(false)
	require.Eventually(t, func() bool { return s.Ready(context.Background()) == nil }, time.Minute, time.Millisecond)
	recordDevices(t, s, devices.On("alice", "a", base))
	require.Equal(t, uint32(version2), versionOf(t, s))
}

// fileOfVersion3 is a data file in whose snapshot and log users set an availability, not closed. Every later version
// has to read it, see TestFileOfVersion3.
const fileOfVersion3 = "6c6173747365656e0000000359d4898a00000000000001031caafa9f000000dbb4108578229381326e04636861747303626f62ff9fabfe" +
	"f96273056361726f6cff9fabfef9627305616c69636580a0abfef9626105616c6963650462757379000c696e2061206d656574696e6761" +
	"03626f620461776179d0afabfef962006104646176650462757379000c696e2061206d656574696e6761036576650462757379000c696e" +
	"2061206d656574696e676803626f62feeffea1fa9d730000086e6f74206865726568056361726f6ce8a7abfef96200e8a7abfef962086e" +
	"6f7420686572656e04676f6e656805616c696365feeffea1fa9d730000086e6f742068657265650000001cca8d388a2411a0356e046368" +
	"61746105616c69636500000c61206e6f746520616c6f6e650000002c6937fa10b27cb03c6e04636861746803626f6282a0abfef9620100" +
	"006103626f620462757379000c696e2061206d656574696e670000000feed23e729fcc8b2e6e0463686174610464617665000000000000" +
	"0b7019d6a05b5bcd0c6e04636861746603657665000000198858d18091cd93556e046368617461056672616e6b0461776179d0afabfef9" +
	"620000000013f55905a265149ea46e046368617473056672616e6b80e6f3faf9620000000d84b8863919ac4c416e046368617474056672" +
	"616e6b00000030f147add2d59a5af86e046c6566747305616c696365ffe5f3faf9626805616c696365e8a7abfef96200e8a7abfef96208" +
	"6e6f7420686572650000000d8c60e18b3546c90c6e046c6566747405616c69636500000007f4a7bdcf3927322f6e046c65667465000000" +
	"17b31d2d8ef9c3c9306e046c6566746805616c696365fe9fabfef96201000065"

func TestFileOfVersion3(t *testing.T) {
	s := openText(t, fileOfVersion3)
	require.Equal(t, truth{"chat": {
		"alice": {At: base}, "bob": {At: base, Left: true}, "carol": {At: base, Left: true},
	}}, truthOf(t, s))
	ended := memstore.Hidden{HiddenTime: lastseen.HiddenTime{End: base + 1, Ended: true}}
	forever := memstore.Hidden{HiddenTime: lastseen.HiddenTime{End: lastseen.MaxInstant}, Note: "not here"}
	require.Equal(t, map[string]string{
		"chat/alice": fmt.Sprint(lastseen.AvailabilityState{Note: "a note alone"}),
		"chat/bob":   fmt.Sprint(busy) + fmt.Sprint(ended),
		"chat/carol": fmt.Sprint(hiding),
		"chat/frank": fmt.Sprint(away), "(gone)/alice": fmt.Sprint(forever),
		"(left)/alice": fmt.Sprint(memstore.Hidden{HiddenTime: lastseen.HiddenTime{End: base - 1, Ended: true}}),
	}, keptIn(s))
	users := []string{"alice", "bob", "carol", "dave", "eve", "frank"}
	_, details, err := s.Describe(context.Background(), "chat", users)
	require.NoError(t, err)
	require.Equal(t, map[string]store.Details{
		"alice": {Availability: lastseen.AvailabilityState{Note: "a note alone"}},
		"bob":   {Availability: busy}, "frank": {Availability: away},
	}, details)
}

// TestAvailabilityAndRestarts: the store that opens the file knows what users said before, and what is hidden.
func TestAvailabilityAndRestarts(t *testing.T) {
	t.Parallel()
	for _, o := range testenv.Variants(
		Options{Sync: defaultSync}, Options{Sync: time.Hour}, Options{Sync: time.Millisecond, CompactAfter: 1}) {
		t.Run(fmt.Sprintf("sync=%s,compact=%d", o.Sync, o.CompactAfter), func(t *testing.T) {
			t.Parallel()
			availability.RunFaulty(t, func(testing.TB) kit.Breakable {
				o.Path = newPath(t)
				s := open(t, o)
				return kit.Breakable{Store: s, Restart: func() store.Store {
					require.NoError(t, s.Close())
					s = open(t, o)
					return s
				}}
			})
		})
	}
}
