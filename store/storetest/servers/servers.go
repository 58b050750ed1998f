// Package servers has the conformance tests of the servers that use a store: leases, a clock, connections and signals.
package servers

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Run tests what stores promise to the servers that use them: leases, a clock, and connections that all of them
// close. Each subtest opens its own store.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Lease", testLease},
		{"Notes", testNotes},
		{"Notes/Concurrent", testNotesConcurrent},
		{"Disconnects", testDisconnects},
		{"Disconnects/Again", testDisconnectsAgain},
		{"Disconnects/Positions", testDisconnectsPositions},
		{"Disconnects/UserIDs", testDisconnectsOfUserIDs},
		{"Disconnects/Concurrent", testDisconnectsConcurrent},
		{"Secret", testSecret},
		{"Now", testNow},
		{"Ready", testReady},
	})
}

func testNow(t *testing.T, s store.Store) {
	last := kit.Now(t, s)
	require.Positive(t, last)
	for range 1000 {
		at := kit.Now(t, s)
		require.GreaterOrEqual(t, at, last, "time runs backwards")
		last = at
	}
}

// testSecret: all get the same secret, also those who ask first at the same time.
func testSecret(t *testing.T, s store.Store) {
	secrets := make([][32]byte, 8)
	var asking errgroup.Group
	for k := range secrets {
		asking.Go(func() (err error) {
			secrets[k], err = s.Secret(context.Background())
			return err
		})
	}
	require.NoError(t, asking.Wait())
	require.NotZero(t, secrets[0])
	for _, secret := range secrets {
		require.Equal(t, secrets[0], secret)
	}
}

func testReady(t *testing.T, s store.Store) {
	require.NoError(t, s.Ready(context.Background()))
	require.GreaterOrEqual(t, s.Load(), 0.0)
	require.LessOrEqual(t, s.Load(), 1.0)
}

func testLease(t *testing.T, s store.Store) {
	for range 2 { // taken, and prolonged
		for _, name := range []string{"job", "other"} {
			granted, err := s.Lease(context.Background(), name, time.Hour)
			require.NoError(t, err)
			require.True(t, granted)
		}
	}
}

// testNotes: a note is replaced only by one who knows it.
func testNotes(t *testing.T, s store.Store) {
	ctx := context.Background()
	set := func(name, key, old string, n store.Note) bool {
		set, err := s.SetNote(ctx, name, key, old, n)
		require.NoError(t, err)
		return set
	}
	noted := func(name string) store.Note {
		n, err := s.Note(ctx, name, "a")
		require.NoError(t, err)
		return n
	}
	long := bytes.Repeat([]byte("\x00 \xff"), 1<<18)
	first, second := store.Note{Version: "1", Text: []byte("one two ")}, store.Note{Version: "2", Text: long}
	require.Zero(t, noted("job"))
	require.False(t, set("job", "a", "1", second), "there is none")
	require.True(t, set("job", "a", "", first))
	require.Equal(t, first, noted("job"))
	for _, old := range []string{"", "2", "11", "1 one"} {
		require.False(t, set("job", "a", old, second))
	}
	require.Equal(t, first, noted("job"))
	require.True(t, set("job", "a", "1", second))
	require.Equal(t, second, noted("job"))
	require.False(t, set("job", "a", "1", store.Note{}))
	require.True(t, set("job", "", "", first), "the empty key is one, too")
	require.True(t, set("other", "a", "", first), "names are apart")

	keys, err := s.Notes(ctx, "job")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", ""}, keys)
	require.True(t, set("job", "a", "2", store.Note{}))
	require.Zero(t, noted("job"))
	keys, err = s.Notes(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, []string{""}, keys)
	require.Equal(t, first, noted("other"))
}

// testNotesConcurrent: of all who replace the same note, one does.
func testNotesConcurrent(t *testing.T, s store.Store) {
	for round := range 20 {
		var replaced atomic.Int32
		var writing errgroup.Group
		for k := range 8 {
			writing.Go(func() error {
				old := ""
				if round > 0 {
					old = strconv.Itoa(round)
				}
				n := store.Note{Version: strconv.Itoa(round + 1), Text: []byte(strconv.Itoa(k))}
				set, err := s.SetNote(context.Background(), "job", "a", old, n)
				if set {
					replaced.Add(1)
				}
				return err
			})
		}
		require.NoError(t, writing.Wait())
		require.EqualValues(t, 1, replaced.Load())
	}
}

func closeConnections(t require.TestingT, s store.Store, namespace string, users ...string) {
	for _, user := range users {
		require.NoError(t, s.CloseConnections(context.Background(), namespace, user))
	}
}

// disconnects returns what was asked after a position, and the next position.
func disconnects(
	t require.TestingT, s store.Store, after store.DisconnectPosition,
) ([]store.Disconnect, store.DisconnectPosition) {
	list, next, err := s.Disconnects(context.Background(), after)
	require.NoError(t, err)
	require.NotEmpty(t, next, "the empty position is the present")
	return list, next
}

// named returns the namespaces and users of disconnects.
func named(list []store.Disconnect) []string {
	names := []string{}
	for _, c := range list {
		names = append(names, c.Namespace+"/"+c.User)
	}
	return names
}

// testDisconnects: a reader gets every disconnect after its position once, in order, also those of a namespace.
func testDisconnects(t *testing.T, s store.Store) {
	closeConnections(t, s, kit.Namespace, "before")
	list, start := disconnects(t, s, "")
	require.Empty(t, list, "the empty position is the present")
	list, again := disconnects(t, s, start)
	require.Empty(t, list)

	before := kit.Now(t, s)
	var want []string
	for i := range 5 {
		user := fmt.Sprint("user", 9-i)
		closeConnections(t, s, kit.Namespace, user)
		want = append(want, kit.Namespace+"/"+user)
	}
	closeConnections(t, s, kit.Namespace, "")
	want = append(want, kit.Namespace+"/")
	for _, after := range []store.DisconnectPosition{start, again, start} {
		list, next := disconnects(t, s, after)
		require.Equal(t, want, named(list), "positions can be used again")
		for i, c := range list {
			require.GreaterOrEqual(t, c.At, before.Add(-time.Second), "by the store's clock")
			require.LessOrEqual(t, c.At, kit.Now(t, s).Add(time.Second), "by the store's clock")
			require.True(t, i == 0 || list[i-1].At <= c.At)
		}
		list, _ = disconnects(t, s, next)
		require.Empty(t, list)
		again = next
	}
	list, _ = disconnects(t, s, "")
	require.Empty(t, list, "the empty position is the present")
	closeConnections(t, s, kit.Namespace, "last")
	list, _ = disconnects(t, s, again)
	require.Equal(t, []string{kit.Namespace + "/last"}, named(list))
	require.Empty(t, kit.Namespaces(t, s, 10), "a disconnect makes no namespace exist")
}

// testDisconnectsAgain: asking again does it again, for connections that were opened meanwhile.
func testDisconnectsAgain(t *testing.T, s store.Store) {
	_, start := disconnects(t, s, "")
	closeConnections(t, s, kit.Namespace, "alice", "bob")
	first, middle := disconnects(t, s, start)
	require.Equal(t, []string{kit.Namespace + "/alice", kit.Namespace + "/bob"}, named(first))
	closeConnections(t, s, kit.Namespace, "alice")
	closeConnections(t, s, "other", "alice", "alice")
	second, _ := disconnects(t, s, middle)
	require.Equal(t, []string{kit.Namespace + "/alice", "other/alice"}, named(second))
	require.GreaterOrEqual(t, second[0].At, first[0].At)
	all, _ := disconnects(t, s, start)
	require.Equal(t, []string{kit.Namespace + "/bob", kit.Namespace + "/alice", "other/alice"}, named(all),
		"each once, in the order of the last")
	require.Contains(t, all, second[0], "at the time of the last")
	require.Contains(t, all, second[1], "at the time of the last")
}

// testDisconnectsPositions: a position that is not known misses nothing.
func testDisconnectsPositions(t *testing.T, s store.Store) {
	closeConnections(t, s, kit.Namespace, "alice")
	_, position := disconnects(t, s, "")
	closeConnections(t, s, kit.Namespace, "bob")
	for _, odd := range []store.DisconnectPosition{
		"x", "0", "-1", "9999999999999999999999", "1.5", " ", "\x00", "(", "+inf", "nan", "é",
		position + "0", position + "x",
	} {
		list, next := disconnects(t, s, odd)
		require.Contains(t, named(list), kit.Namespace+"/bob", "%q", odd)
		closeConnections(t, s, kit.Namespace, "carol")
		list, _ = disconnects(t, s, next)
		require.Equal(t, []string{kit.Namespace + "/carol"}, named(list), "%q", odd)
	}
}

// testDisconnectsOfUserIDs: any user ID arrives as it was written.
func testDisconnectsOfUserIDs(t *testing.T, s store.Store) {
	_, start := disconnects(t, s, "")
	all := kit.OddIDs()
	closeConnections(t, s, kit.Namespace, all...)
	list, _ := disconnects(t, s, start)
	got := []string{}
	for _, c := range list {
		require.Equal(t, kit.Namespace, c.Namespace)
		got = append(got, c.User)
	}
	require.Equal(t, all, got)
}

// testDisconnectsConcurrent: no reader misses a disconnect, however many arrive at the same time.
func testDisconnectsConcurrent(t *testing.T, s store.Store) {
	const writers, readers, writes = 6, 3, 60
	_, start := disconnects(t, s, "")
	var writing, reading sync.WaitGroup
	stop := make(chan struct{})
	seen := make([]map[string]lastseen.Instant, readers)
	for r := range readers {
		seen[r] = map[string]lastseen.Instant{}
		reading.Go(func() {
			position := start
			for ended := false; ; {
				list, next, err := s.Disconnects(context.Background(), position)
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range list {
					seen[r][c.User] = c.At
				}
				position = next
				if ended {
					return
				}
				select {
				case <-stop:
					ended = true
				default:
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range writes {
				if err := s.CloseConnections(context.Background(), kit.Namespace, fmt.Sprint(w, "-", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	reading.Wait()
	list, _ := disconnects(t, s, start)
	require.Len(t, list, writers*writes)
	for _, got := range seen {
		require.Len(t, got, writers*writes)
	}
}
