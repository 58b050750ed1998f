package filestore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
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
		got, err := s.ReadDevices(context.Background(), "chat", user)
		require.NoError(t, err)
		want.State = s.index.get("chat", user)
		require.Equal(t, want, got)
	}
}

// versionOf returns the version of a store's file.
func versionOf(t testing.TB, s *Store) uint32 {
	t.Helper()
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	version, err := readVersion(bytes.NewReader(data))
	require.NoError(t, err)
	return version
}

// older returns the formats of a lastseen that knows no devices.
func older() formats {
	k := supported()
	k.current = version1
	delete(k.read, version2)
	delete(k.read, version3)
	return k
}

// TestVersionRises: a file that has had no device can be opened by an older lastseen, which refuses any other one.
func TestVersionRises(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync})
		ping(t, s, "alice", base)
		require.NoError(t, compactNow(s))
		require.NoError(t, s.Close())
		before, err := openWith(older(), Options{Path: s.Path(), Logger: quiet()})
		require.NoError(t, err)
		require.NoError(t, before.Close())

		s = open(t, Options{Path: s.Path(), Sync: sync})
		require.Equal(t, uint32(version1), versionOf(t, s))
		recordDevices(t, s, onDevice("alice", "a", base))
		check := func() {
			require.Equal(t, uint32(version2), versionOf(t, s))
			require.NoError(t, Verify(backup(t, s)))
			require.NoError(t, s.Close())
			_, err = openWith(older(), Options{Path: s.Path(), Logger: quiet()})
			require.ErrorIs(t, err, ErrNewer)
			s = open(t, Options{Path: s.Path(), Sync: sync})
		}
		require.NoError(t, s.writer.do(context.Background(), write{durable: true, op: opFunc(func(*transaction) {})}))
		check()
		require.NoError(t, compactNow(s))
		check()
		require.NoError(t, s.Forget(context.Background(), "chat", "alice"))
		require.NoError(t, compactNow(s))
		check()
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
		s.mu.Lock()
		frozen, from := s.index.freeze(), s.writer.log.end
		s.mu.Unlock()
		recordDevices(t, s, onDevice("alice", "a", base))
		require.NoError(t, s.writer.log.compact(frozen, from))
		require.Equal(t, uint32(version2), versionOf(t, s))
		require.NoError(t, s.Close())
		require.Contains(t, devicesIn(t, open(t, Options{Path: s.Path()}), "alice")[0], "{a web ")
	})
	t.Run("snapshot", func(t *testing.T) {
		s, g := opened(t, time.Hour)
		t.Cleanup(func() { close(g.open) })
		recordDevices(t, s, onDevice("alice", "a", base))
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
		[]store.DeviceSighting{onDevice("alice", "a", base)})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Equal(t, size, sizeOf(t, s))
	s.writer.log.mu.Lock()
	require.Equal(t, uint32(version1), s.writer.log.header.version)
	s.writer.log.mu.Unlock()
	fails.Store(false)
	require.Eventually(t, func() bool { return s.Ready(context.Background()) == nil }, time.Minute, time.Millisecond)
	recordDevices(t, s, onDevice("alice", "a", base))
	require.Equal(t, uint32(version2), versionOf(t, s))
}
