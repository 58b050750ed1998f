package servers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func closeConnections(t require.TestingT, s store.Store, namespace string, users ...string) {
	for _, user := range users {
		require.NoError(t, s.CloseConnections(context.Background(), namespace, user))
	}
}

// closings returns what was asked after a place, and the next place.
func closings(t require.TestingT, s store.Store, after store.ClosingPlace) ([]store.Closing, store.ClosingPlace) {
	list, next, err := s.Closings(context.Background(), after)
	require.NoError(t, err)
	require.NotEmpty(t, next, "the empty place is the present")
	return list, next
}

// named returns the namespaces and users of closings.
func named(list []store.Closing) []string {
	names := []string{}
	for _, c := range list {
		names = append(names, c.Namespace+"/"+c.User)
	}
	return names
}

// testClosings: a reader gets every closing after its place once, in order, also those of a namespace.
func testClosings(t *testing.T, s store.Store) {
	closeConnections(t, s, kit.Namespace, "before")
	list, start := closings(t, s, "")
	require.Empty(t, list, "the empty place is the present")
	list, again := closings(t, s, start)
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
	for _, after := range []store.ClosingPlace{start, again, start} {
		list, next := closings(t, s, after)
		require.Equal(t, want, named(list), "places can be used again")
		for i, c := range list {
			require.GreaterOrEqual(t, c.At, before.Add(-time.Second), "by the store's clock")
			require.LessOrEqual(t, c.At, kit.Now(t, s).Add(time.Second), "by the store's clock")
			require.True(t, i == 0 || list[i-1].At <= c.At)
		}
		list, _ = closings(t, s, next)
		require.Empty(t, list)
		again = next
	}
	list, _ = closings(t, s, "")
	require.Empty(t, list, "the empty place is the present")
	closeConnections(t, s, kit.Namespace, "last")
	list, _ = closings(t, s, again)
	require.Equal(t, []string{kit.Namespace + "/last"}, named(list))
	require.Empty(t, kit.Namespaces(t, s, 10), "a closing makes no namespace exist")
}

// testClosingsAgain: asking again does it again, for connections that were opened meanwhile.
func testClosingsAgain(t *testing.T, s store.Store) {
	_, start := closings(t, s, "")
	closeConnections(t, s, kit.Namespace, "alice", "bob")
	first, middle := closings(t, s, start)
	require.Equal(t, []string{kit.Namespace + "/alice", kit.Namespace + "/bob"}, named(first))
	closeConnections(t, s, kit.Namespace, "alice")
	closeConnections(t, s, "other", "alice", "alice")
	second, _ := closings(t, s, middle)
	require.Equal(t, []string{kit.Namespace + "/alice", "other/alice"}, named(second))
	require.GreaterOrEqual(t, second[0].At, first[0].At)
	all, _ := closings(t, s, start)
	require.Equal(t, []string{kit.Namespace + "/bob", kit.Namespace + "/alice", "other/alice"}, named(all),
		"each once, in the order of the last")
	require.Contains(t, all, second[0], "at the time of the last")
	require.Contains(t, all, second[1], "at the time of the last")
}

// testClosingsPlaces: a place that is not known misses nothing.
func testClosingsPlaces(t *testing.T, s store.Store) {
	closeConnections(t, s, kit.Namespace, "alice")
	_, place := closings(t, s, "")
	closeConnections(t, s, kit.Namespace, "bob")
	for _, odd := range []store.ClosingPlace{
		"x", "0", "-1", "9999999999999999999999", "1.5", " ", "\x00", "(", "+inf", "nan", place + "0", place + "x", "é",
	} {
		list, next := closings(t, s, odd)
		require.Contains(t, named(list), kit.Namespace+"/bob", "%q", odd)
		closeConnections(t, s, kit.Namespace, "carol")
		list, _ = closings(t, s, next)
		require.Equal(t, []string{kit.Namespace + "/carol"}, named(list), "%q", odd)
	}
}

// testClosingsOfUserIDs: any user ID arrives as it was written.
func testClosingsOfUserIDs(t *testing.T, s store.Store) {
	_, start := closings(t, s, "")
	all := kit.OddIDs()
	closeConnections(t, s, kit.Namespace, all...)
	list, _ := closings(t, s, start)
	got := []string{}
	for _, c := range list {
		require.Equal(t, kit.Namespace, c.Namespace)
		got = append(got, c.User)
	}
	require.Equal(t, all, got)
}

// testClosingsConcurrent: no reader misses a closing, however many arrive at the same time.
func testClosingsConcurrent(t *testing.T, s store.Store) {
	const writers, readers, writes = 6, 3, 60
	_, start := closings(t, s, "")
	var writing, reading sync.WaitGroup
	stop := make(chan struct{})
	seen := make([]map[string]lastseen.Instant, readers)
	for r := range readers {
		seen[r] = map[string]lastseen.Instant{}
		reading.Go(func() {
			place := start
			for ended := false; ; {
				list, next, err := s.Closings(context.Background(), place)
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range list {
					seen[r][c.User] = c.At
				}
				place = next
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
	list, _ := closings(t, s, start)
	require.Len(t, list, writers*writes)
	for _, got := range seen {
		require.Len(t, got, writers*writes)
	}
}
