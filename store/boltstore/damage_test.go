package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// truth is what a store holds: namespace, user, state.
type truth map[string]map[string]lastseen.State

// truthOf reads everything through the contract.
func truthOf(t testing.TB, s *Store) truth {
	t.Helper()
	ctx := context.Background()
	infos, err := s.Namespaces(ctx, "", 1000)
	require.NoError(t, err)
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

// sampleFile makes a data file that was folded more than once, with every kind of page that bbolt
// has, and returns its bytes, the numbers of the pages in use, and what it holds.
func sampleFile(t testing.TB) (data []byte, used []int, held truth) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sample.db")
	ctx := context.Background()
	s := open(t, Options{Path: path, Sync: 0, FoldAfter: 1 << 20})
	batch := make([]store.Sighting, 30_000)
	for i := range batch {
		batch[i] = store.Sighting{User: fmt.Sprintf("a-rather-long-user-name-%06d", i), At: base + lastseen.Instant(i)}
	}
	for range 2 {
		for i := range batch {
			batch[i].At++
		}
		_, err := s.Ping(ctx, "large", batch)
		require.NoError(t, err)
		ping(t, s, "somebody", base) // after the fold has begun
		s.writer.log.folding.Wait()
	}
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	for i := range 300 {
		_, err := s.Ping(ctx, fmt.Sprintf("small-%d", i%7), []store.Sighting{{User: fmt.Sprint(i), At: base}})
		require.NoError(t, err)
	}
	_, err := s.Leave(ctx, "large", batch[:2000])
	require.NoError(t, err)
	require.NoError(t, s.Forget(ctx, "large", batch[5000].User))
	require.NoError(t, s.DeleteNamespace(ctx, "small-3"))
	held = truthOf(t, s)
	require.Len(t, held, 7)
	require.Len(t, held["large"], 29_999)
	require.NoError(t, s.Close())
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	return data, usedPages(t, path), held
}

// usedPages returns where the pages in use begin, metas included, of a file worth damaging.
func usedPages(t testing.TB, path string) (used []int) {
	t.Helper()
	require.Contains(t, buckets(t, path), "snapshot-2")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true})
	require.NoError(t, err)
	defer db.Close()
	var all bbolt.BucketStats
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			all.Add(b.Stats())
			return nil
		})
	}))
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		for n := 0; ; n++ {
			info, err := tx.Page(n)
			if info == nil || err != nil {
				return err
			}
			if info.Type != "free" {
				used = append(used, n)
				n += info.OverflowCount
			}
		}
	}))
	require.Positive(t, all.BranchPageN, "branch pages")
	require.Greater(t, all.LeafPageN, 5, "leaf pages")
	require.Positive(t, all.LeafOverflowN, "overflow pages")
	require.Positive(t, all.InlineBucketN, "buckets inside another's page")
	return used
}

// mutation damages a copy of a file's bytes.
type mutation struct {
	name string
	do   func(*rand.Rand, []byte) []byte
}

// mutations returns ways to damage a file with these pages in use; half of the time they hit one.
func mutations(used []int) []mutation {
	pageSize := os.Getpagesize()
	page := func(r *rand.Rand, b []byte) []byte {
		n := r.IntN(len(b) / pageSize)
		if r.IntN(2) == 0 {
			n = used[r.IntN(len(used))]
		}
		return b[n*pageSize : (n+1)*pageSize]
	}
	return []mutation{
		{"truncate", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }},
		{"truncate to a page", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b)/pageSize)*pageSize] }},
		{"flip a byte", func(r *rand.Rand, b []byte) []byte {
			b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
			return b
		}},
		{"flip a byte at a page's beginning", func(r *rand.Rand, b []byte) []byte {
			page(r, b)[r.IntN(96)] ^= byte(1 + r.IntN(255))
			return b
		}},
		{"flip a byte of a meta page", func(r *rand.Rand, b []byte) []byte {
			b[r.IntN(2)*pageSize+r.IntN(80)] ^= byte(1 + r.IntN(255))
			return b
		}},
		{"zero a page", func(r *rand.Rand, b []byte) []byte {
			clear(page(r, b))
			return b
		}},
		{"copy a page over another", func(r *rand.Rand, b []byte) []byte {
			copy(page(r, b), page(r, b))
			return b
		}},
		{"small numbers at a page's beginning", func(r *rand.Rand, b []byte) []byte {
			page(r, b)[8*r.IntN(12)] = byte(r.IntN(40))
			return b
		}},
	}
}

// TestDamage damages a data file in every way at random places. What comes of it is an error, and the
// file as it was; or the full truth, when what was hit held nothing.
func TestDamage(t *testing.T) {
	whole, used, held := sampleFile(t)
	const rounds = 40
	refused, kept := 0, 0
	for _, m := range mutations(used) {
		for seed := range uint64(rounds) {
			what := fmt.Sprintf("%s, seed %d", m.name, seed)
			damaged := m.do(rand.New(rand.NewPCG(seed, 7)), append([]byte{}, whole...))
			path := filepath.Join(t.TempDir(), "damaged.db")
			require.NoError(t, os.WriteFile(path, damaged, 0o600))
			s, err := Open(Options{Path: path, Sync: DefaultSync, Logger: quiet()})
			if err == nil {
				kept++
				require.Equal(t, held, truthOf(t, s), what)
				require.NoError(t, s.Close(), what)
				continue
			}
			refused++
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrNewer) {
				t.Errorf("%s: %v", what, err)
			}
			after, readErr := os.ReadFile(path)
			require.NoError(t, readErr)
			if !bytes.Equal(damaged, after) {
				t.Errorf("%s: a refused file was changed", what)
			}
			require.NoError(t, os.Remove(path))
		}
	}
	t.Logf("%d files refused, %d still whole", refused, kept)
	require.Greater(t, refused, rounds)
	require.Positive(t, kept, "no mutation hit an unused place: the sample is too small to tell")
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.db")
	db, err := bbolt.Open(other, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}))
	require.NoError(t, db.Close())
	for name, content := range map[string]string{
		"empty": "", "text": "hello", "long text": string(make([]byte, 100_000)), "SQLite": "SQLite format 3\x00" + string(make([]byte, 9000)),
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := Open(Options{Path: path})
		require.ErrorIs(t, err, ErrForeign, name)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(after))
	}
	for _, path := range []string{other, dir} {
		_, err := Open(Options{Path: path})
		require.ErrorIs(t, err, ErrForeign, path)
	}
}

func TestNewerFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "newer.db")
	require.NoError(t, createFile(path))
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(headerBucket).Put(formatKey, []byte("2"))
	}))
	require.NoError(t, db.Close())
	_, err = Open(Options{Path: path})
	require.ErrorIs(t, err, ErrNewer)
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lastseen.db")
	s := open(t, Options{Path: path, Sync: DefaultSync})
	_, err := Open(Options{Path: path})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, s.Close())
	open(t, Options{Path: path})
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "who was seen when is nobody else's business")
}
