package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// truth is what a store holds: namespace, user, state.
type truth map[string]map[string]lastseen.State

// truthOf reads everything through the contract.
func truthOf(t testing.TB, s *Store) truth {
	t.Helper()
	ctx := context.Background()
	infos := kit.Namespaces(t, s, 1000)
	all := truth{}
	for _, info := range infos {
		records, err := s.List(ctx, info.Name, store.ListQuery{Limit: 1_000_000, Ranges: []lastseen.Range{
			{From: lastseen.MinInstant, To: lastseen.MaxInstant},
			{From: lastseen.MinInstant, To: lastseen.MaxInstant, Left: true},
		}})
		require.NoError(t, err)
		all[info.Name] = map[string]lastseen.State{}
		for _, r := range records {
			all[info.Name][r.User] = r.State
		}
	}
	return all
}

// sample is a data file with a snapshot and a log.
type sample struct {
	running []byte // while the store has it open
	closed  []byte // after a clean stop
	held    truth
	records []int64 // where they begin, and where the last one ends
	sealed  int64   // of running
}

// newSample makes a data file with so many users in its snapshot, and some in its log.
func newSample(t testing.TB, users int) (made sample) {
	t.Helper()
	ctx := context.Background()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	pingMany(t, s, "large", users, base)
	ping(t, s, "gone", base)
	device := devices.On("a-rather-long-user-name-000000", "phone", base)
	device.Meta = "{}"
	_, err := s.RecordDevices(ctx, "large", time.Minute, []store.DeviceEvent{device})
	require.NoError(t, err)
	availability.SetIn(t, s, "large", "a-rather-long-user-name-000003", busy, base)
	availability.SetIn(t, s, "large", "a-rather-long-user-name-000003", invisible, base)
	require.NoError(t, compactNow(s))
	made.sealed = s.writer.log.header.sealed
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	for i := range 5 {
		kit.Write(s.Ping).Send(t, fmt.Sprintf("small-%d", i%3), []store.PresenceEvent{{User: fmt.Sprint(i), At: base}})
	}
	device.At, device.Gone = base+1, true
	_, err = s.RecordDevices(ctx, "large", time.Minute, []store.DeviceEvent{device})
	require.NoError(t, err)
	kit.Write(s.Leave).Send(t, "large", []store.PresenceEvent{{User: "a-rather-long-user-name-000001", At: base + 1}})
	require.NoError(t, s.Forget(ctx, "large", "a-rather-long-user-name-000002"))
	availability.SetIn(t, s, "large", "a-rather-long-user-name-000003", away, base)
	availability.SetIn(t, s, "small-0", "says", invisible, base)
	require.NoError(t, s.Register(ctx, []string{"empty"}))
	made.held = truthOf(t, s)
	made.running, err = os.ReadFile(s.Path())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	made.closed, err = os.ReadFile(s.Path())
	require.NoError(t, err)
	h, err := readHeader(bytes.NewReader(made.closed))
	require.NoError(t, err)
	r := newRecordReader(bytes.NewReader(made.closed), h, headerSize, int64(len(made.closed)))
	for err == nil {
		made.records = append(made.records, r.at)
		_, err = r.next()
	}
	return made
}

// openDamaged opens a damaged file. It returns what is in it, or nil if it was refused, and then it was not changed.
func openDamaged(t testing.TB, damaged []byte, what string) truth {
	t.Helper()
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	defer os.Remove(path)
	s, err := Open(Options{Path: path, Sync: defaultSync, Logger: quiet()})
	if err == nil {
		defer s.Close()
		return truthOf(t, s)
	}
	refusals := []error{ErrDamaged, ErrForeign, ErrNewer, ErrOlder}
	if !slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
		t.Errorf("%s: %v", what, err)
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(damaged, after), "%s: a refused file was changed", what)
	return nil
}

// TestDamagedByte damages each byte of a file. After a clean stop, every damage is refused. While the store runs, the
// last record alone cannot be distinguished from one that a crash interrupted: it is cut off, and everything else is
// there.
func TestDamagedByte(t *testing.T) {
	testenv.SkipWithRace(t, "a file is only read")
	t.Parallel()
	s := newSample(t, 4)
	last := s.records[len(s.records)-2]
	for i := range s.closed {
		for _, bit := range []byte{1 << (i % 8), 0xff} {
			what := fmt.Sprintf("byte %d", i)
			damaged := bytes.Clone(s.closed)
			damaged[i] ^= bit
			require.Nil(t, openDamaged(t, damaged, what), what)

			damaged = bytes.Clone(s.running)
			damaged[i] ^= bit
			held := openDamaged(t, damaged, what)
			if int64(i) < last {
				require.Nil(t, held, what)
			} else {
				require.Len(t, held, len(s.held)-1, what)
				require.NotContains(t, held, "empty", "of the last record")
			}
		}
	}
}

// TestCutShort cuts a file at every byte. After a clean stop, that is refused. While the store runs, it is refused
// within the snapshot, and what is cut off behind that is what a crash may leave, see TestCutAnywhere.
func TestCutShort(t *testing.T) {
	testenv.SkipWithRace(t, "a file is only read")
	t.Parallel()
	s := newSample(t, 4)
	for cut := range s.closed {
		what := fmt.Sprintf("cut at %d", cut)
		require.Nil(t, openDamaged(t, s.closed[:cut], what), what)
		require.Equal(t, int64(cut) < s.sealed, openDamaged(t, s.running[:cut], what) == nil, what)
	}
}

// mutation damages a copy of a file's bytes.
type mutation struct {
	name string
	do   func(*rand.Rand, []byte) []byte
}

func mutations() []mutation {
	part := func(r *rand.Rand, b []byte) []byte {
		from := r.IntN(len(b))
		return b[from:min(len(b), from+1+r.IntN(4096))]
	}
	return []mutation{
		{"truncate", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }},
		{"flip a byte", func(r *rand.Rand, b []byte) []byte {
			b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
			return b
		}},
		{"zero a part", func(r *rand.Rand, b []byte) []byte {
			clear(part(r, b))
			return b
		}},
		{"fill a part", func(r *rand.Rand, b []byte) []byte {
			for p := part(r, b); len(p) > 0; p = p[1:] {
				p[0] = byte(r.Uint32())
			}
			return b
		}},
		{"copy a part over another", func(r *rand.Rand, b []byte) []byte {
			copy(part(r, b), bytes.Clone(part(r, b)))
			return b
		}},
		{"take out a part", func(r *rand.Rand, b []byte) []byte {
			p := part(r, b)
			return append(b[:len(b)-len(p)-1], p...)
		}},
		{"double a part", func(r *rand.Rand, b []byte) []byte {
			at := r.IntN(len(b))
			return append(b[:at], append(bytes.Clone(part(r, b)), b[at:]...)...)
		}},
	}
}

// TestDamage damages a larger file, whose snapshot has several records, at random places.
func TestDamage(t *testing.T) {
	testenv.SkipWithRace(t, "a file is only read")
	t.Parallel()
	s := newSample(t, 30_000)
	require.Greater(t, len(s.records), 10)
	seeds := testenv.Choose(uint64(3), 1)
	for seed := range seeds {
		for n := range mutations() {
			checkDamage(t, s, n, seed)
		}
	}
}

// FuzzDamage does what TestDamage does, at more places of a smaller file.
func FuzzDamage(f *testing.F) {
	s := newSample(f, 40)
	for n := range mutations() {
		f.Add(n, uint64(n))
	}
	f.Fuzz(func(t *testing.T, n int, seed uint64) {
		if n >= 0 && n < len(mutations()) {
			checkDamage(t, s, n, seed)
		}
	})
}

// checkDamage damages a file in one way. After a clean stop it is refused. While the store runs it is refused, or it
// holds what it held after one of its last records.
func checkDamage(t testing.TB, s sample, n int, seed uint64) {
	t.Helper()
	m := mutations()[n]
	what := fmt.Sprintf("%s, seed %d", m.name, seed)
	damaged := m.do(rand.New(rand.NewPCG(seed, 7)), bytes.Clone(s.closed))
	if bytes.Equal(damaged, s.closed) {
		return
	}
	if !bytes.HasPrefix(damaged, s.closed) { // else something was appended, which is cut off
		require.Nil(t, openDamaged(t, damaged, what), what)
	}
	damaged = m.do(rand.New(rand.NewPCG(seed, 7)), bytes.Clone(s.running))
	same := 0
	for same < min(len(damaged), len(s.running)) && damaged[same] == s.running[same] {
		same++
	}
	held := openDamaged(t, damaged, what)
	if int64(same) < s.sealed {
		require.Nil(t, held, what)
	} else if held != nil {
		whole := 0
		for _, at := range s.records {
			if at <= int64(same) {
				whole = int(at)
			}
		}
		require.Equal(t, openDamaged(t, s.running[:whole], what), held, what)
	}
}

// TestMovedRecord: a record that is valid in one place is not valid in another.
func TestMovedRecord(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: 0})
	ends := []int64{}
	for _, user := range []string{"first", "later", "third"} {
		ping(t, s, user, base)
		ends = append(ends, sizeOf(t, s))
	}
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	a, b := data[ends[0]-(ends[1]-ends[0]):ends[0]], data[ends[0]:ends[1]]
	require.Contains(t, string(a), "first")
	require.Contains(t, string(b), "later")
	swapped := bytes.Clone(data)
	copy(swapped[ends[0]-int64(len(a)):], append(bytes.Clone(b), a...))
	require.Nil(t, openDamaged(t, swapped, "swapped"))
	doubled := append(bytes.Clone(data), data[ends[1]:]...)
	held := openDamaged(t, doubled, "doubled")
	require.Len(t, held["chat"], 3, "cut off")
}
