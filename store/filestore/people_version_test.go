package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
)

// fileOfVersion3 is a data file in whose snapshot and log users say something, not closed. Every later version has to
// read it, see TestFileOfVersion3.
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
	ended := hidden{HiddenTime: lastseen.HiddenTime{End: base + 1, Ended: true}}
	forever := hidden{HiddenTime: lastseen.HiddenTime{End: lastseen.MaxInstant}, note: "not here"}
	require.Equal(t, map[string]string{
		"chat/alice": fmt.Sprint(lastseen.Said{Note: "a note alone"}),
		"chat/bob":   fmt.Sprint(busy) + fmt.Sprint(ended),
		"chat/carol": fmt.Sprint(hiding),
		"chat/frank": fmt.Sprint(away), "(gone)/alice": fmt.Sprint(forever),
		"(left)/alice": fmt.Sprint(hidden{HiddenTime: lastseen.HiddenTime{End: base - 1, Ended: true}}),
	}, keptIn(s))
	users := []string{"alice", "bob", "carol", "dave", "eve", "frank"}
	_, details, err := s.Describe(context.Background(), "chat", users)
	require.NoError(t, err)
	require.Equal(t, map[string]store.Details{
		"alice": {Said: lastseen.Said{Note: "a note alone"}}, "bob": {Said: busy}, "frank": {Said: away},
	}, details)
}

// TestVersionRisesWithPeople: a file without anything said can be opened by a lastseen that does not know what users
// say, which refuses any other one.
func TestVersionRisesWithPeople(t *testing.T) {
	t.Parallel()
	before := supported()
	before.current = version2
	delete(before.read, version3)
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync})
		recordDevices(t, s, onDevice("alice", "a", base))
		setAvailability(t, s, "chat", "alice", lastseen.Said{}, base)
		flushed(t, s)
		require.NoError(t, s.Close())
		older, err := openWith(before, Options{Path: s.Path(), Logger: quiet()})
		require.NoError(t, err)
		require.NoError(t, older.Close())
		s = open(t, Options{Path: s.Path(), Sync: sync})
		require.Equal(t, uint32(version2), versionOf(t, s))
		setAvailability(t, s, "chat", "alice", busy, base)
		for range 2 {
			require.Equal(t, uint32(version3), versionOf(t, s))
			require.NoError(t, Verify(backup(t, s)))
			require.NoError(t, s.Close())
			_, err = openWith(before, Options{Path: s.Path(), Logger: quiet()})
			require.ErrorIs(t, err, ErrNewer)
			s = open(t, Options{Path: s.Path(), Sync: sync})
			require.NoError(t, s.Forget(context.Background(), "chat", "alice"))
			require.NoError(t, compactNow(s))
		}
	}
}

// TestSaidIsDurable: SetAvailability returns after the change is in the file. What could not be written is refused.
func TestSaidIsDurable(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: time.Hour})
	for _, said := range []lastseen.Said{busy, invisible, away, {}} {
		setAvailability(t, s, "chat", "alice", said, base)
		data, err := os.ReadFile(s.Path())
		require.NoError(t, err)
		path := newPath(t)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		require.Equal(t, keptIn(s), keptIn(open(t, Options{Path: path})), "what a crash leaves")
	}
	s = open(t, Options{Path: newPath(t), Sync: 0})
	s.writer.commit = func([][]byte) error { return errors.New("broken") }
	for _, said := range []lastseen.Said{busy, invisible} {
		state, err := s.SetAvailability(context.Background(), "chat", "alice", said, base)
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.Zero(t, state)
	}
	require.Empty(t, keptIn(s))
	require.Empty(t, truthOf(t, s))
}

// TestPeopleAndRestarts: the store that opens the file has what users said to the one before it, and what is hidden.
func TestPeopleAndRestarts(t *testing.T) {
	t.Parallel()
	for _, o := range testenv.Variants(
		Options{Sync: DefaultSync}, Options{Sync: time.Hour}, Options{Sync: time.Millisecond, CompactAfter: 1}) {
		t.Run(fmt.Sprintf("sync=%s,compact=%d", o.Sync, o.CompactAfter), func(t *testing.T) {
			t.Parallel()
			storetest.RunFaultyAvailability(t, func(testing.TB) storetest.Breakable {
				o.Path = newPath(t)
				s := open(t, o)
				return storetest.Breakable{Store: s, Restart: func() store.Store {
					require.NoError(t, s.Close())
					s = open(t, o)
					return s
				}}
			})
		})
	}
}
