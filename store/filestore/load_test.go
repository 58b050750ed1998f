package filestore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
)

// fileOfVersion1 is a data file that the first version of lastseen wrote, with a snapshot and log records, not closed.
// Every later version has to read it, see TestFileOfVersion1.
const fileOfVersion1 = "6c6173747365656e00000001af1654e100000000000000607c3c537200000038ad5f95c1198403bc6e04" +
	"636861747303626f6281a0abfef9627305616c69636580a0abfef96273056361726f6c80a0abfef9626e05656d7074796e04676f6e65" +
	"0000001349c95506cbbc816a6e04636861747305616c6963658ea0abfef9620000000dc6138d72fdbb1c8f6e04636861" +
	"7466056361726f6c00000007d68d92fded7b92826e04676f6e6564"

// withVersion returns a file with another version in its header, whose checksum matches.
func withVersion(t testing.TB, data []byte, version uint32) []byte {
	t.Helper()
	h, err := readHeader(bytes.NewReader(data))
	require.NoError(t, err)
	h.version = version
	return append(h.bytes(), data[headerSize:]...)
}

func TestFileOfVersion1(t *testing.T) {
	require.Equal(t, truth{
		"chat":  {"alice": {At: base + 7}, "bob": {At: base + 1, Left: true}},
		"empty": {},
	}, truthOf(t, openText(t, fileOfVersion1)))
}

func TestOtherVersions(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: 0})
	ping(t, s, "alice", base)
	require.NoError(t, s.Close())
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	for version, want := range map[uint32]error{0: ErrOlder, 4: ErrNewer, 1 << 31: ErrNewer} {
		require.NoError(t, os.WriteFile(s.Path(), withVersion(t, data, version), 0o600))
		refused(t, s.Path(), want)
	}
}

// TestUpgrade does what a later version of lastseen will do, whose format has the number 4, with a file of version 1.
func TestUpgrade(t *testing.T) {
	next := supported()
	next.base, next.current = 4, 4
	s := open(t, Options{Path: newPath(t), Sync: 0})
	pingMany(t, s, "chat", 1000, base)
	held := truthOf(t, s)
	require.NoError(t, s.Close())
	// A crash before the upgrade leaves a torn record; it must not survive in the new file.
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Path(), append(data, "torn"...), 0o600))

	o := Options{Path: s.Path(), Sync: defaultSync, Logger: quiet()}
	later, err := openWith(next, o)
	require.NoError(t, err)
	require.Equal(t, held, truthOf(t, later))
	ping(t, later, "new", base)
	require.NoError(t, later.Close())
	data, err = os.ReadFile(s.Path())
	require.NoError(t, err)
	version, err := readVersion(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, uint32(4), version)
	refused(t, s.Path(), ErrNewer)

	held["chat"]["new"] = lastseen.State{At: base}
	later, err = openWith(next, o)
	require.NoError(t, err)
	require.Equal(t, held, truthOf(t, later))
	require.NoError(t, later.Close())
}

// TestFailedUpgrade: a file that cannot be rewritten is refused and stays as it is.
func TestFailedUpgrade(t *testing.T) {
	next := supported()
	next.base, next.current = 4, 4
	s := open(t, Options{Path: newPath(t), Sync: 0})
	ping(t, s, "alice", base)
	require.NoError(t, s.Close())
	before, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(tempName(s.Path())+"/in-the-way", 0o700))
	_, err = openWith(next, Options{Path: s.Path(), Logger: quiet()})
	require.Error(t, err)
	after, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// TestCutAnywhere cuts a file of a running store at every byte, as a crash during a flush may. Nothing that was
// written before is lost, and the store continues from there.
func TestCutAnywhere(t *testing.T) {
	testenv.SkipWithRace(t, "a file is only read")
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	type moment struct {
		end  int64
		held truth
	}
	moments := []moment{{sizeOf(t, s), truthOf(t, s)}}
	for i := range 4 {
		pingMany(t, s, "chat", 1+2*i, base+lastseen.Instant(i))
		moments = append(moments, moment{sizeOf(t, s), truthOf(t, s)})
	}
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	for cut := range len(data) + 1 {
		path := newPath(t)
		torn := bytes.Clone(data[:cut])
		want, at := moments[0].held, int64(0)
		for _, m := range moments {
			if m.end <= int64(cut) {
				want, at = m.held, m.end
			}
		}
		if cut > headerSize && cut%3 > 0 { // the file is as long as it should be, but not all of it was written
			rest := data[cut:]
			for _, m := range moments {
				if m.end > int64(cut) {
					rest = data[cut:m.end]
					break
				}
			}
			tail := make([]byte, len(rest))
			for i := range tail {
				tail[i] = byte(random.IntN(256) * (cut % 3 % 2))
			}
			if at < int64(cut) {
				torn = append(torn, tail...)
			}
		}
		require.NoError(t, os.WriteFile(path, torn, 0o600))
		if cut < headerSize {
			want := ErrDamaged
			if cut == 0 {
				want = ErrForeign
			}
			refused(t, path, want)
			continue
		}
		again, err := Open(Options{Path: path, Sync: 0, Logger: quiet()})
		require.NoError(t, err, cut)
		require.Equal(t, want, truthOf(t, again), cut)
		require.Equal(t, max(at, headerSize), sizeOf(t, again), "the rest is cut off")
		ping(t, again, "after", base)
		require.Contains(t, inFile(t, again)["chat"], "after")
		require.NoError(t, again.Close())
		require.NoError(t, os.Remove(path))
	}
}

// TestLongLengths: a length in a record that is not true takes no memory and no time.
func TestLongLengths(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	ping(t, s, "alice", base)
	held := truthOf(t, s)
	log := s.writer.log
	for _, length := range []int{1, headSize, 1 << 20, maxPayload} {
		data, err := os.ReadFile(s.Path())
		require.NoError(t, err)
		path := newPath(t)
		require.NoError(t, os.WriteFile(path, append(data, log.header.head(log.end, make([]byte, length))...), 0o600))
		require.Equal(t, held, truthOf(t, open(t, Options{Path: path})), fmt.Sprint(length))
	}
	path := newPath(t)
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(data, make([]byte, headSize+maxPayload+1)...), 0o600))
	refused(t, path, ErrDamaged)
	require.Error(t, log.appendRecord(make([]byte, maxPayload+1)), "what could not be read is not written")
}
