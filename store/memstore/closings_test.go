package memstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func closeOf(t testing.TB, s *Store, user string) {
	t.Helper()
	require.NoError(t, s.CloseConnections(context.Background(), "chat", user))
}

func closingsAfter(t testing.TB, s *Store, after store.ClosingPlace) (users []string, next store.ClosingPlace) {
	t.Helper()
	list, next, err := s.Closings(context.Background(), after)
	require.NoError(t, err)
	for _, c := range list {
		users = append(users, c.User)
	}
	return users, next
}

// TestClosingsAge by true time: a clock that is set neither keeps nor deletes them.
func TestClosingsAge(t *testing.T) {
	t.Parallel()
	const years = 30 * 365 * 24 * time.Hour
	for _, wrong := range []time.Duration{0, years, -years} {
		m := &kit.Machine{}
		s := open(t, optionsOf(m))
		_, start := closingsAfter(t, s, "")
		closeOf(t, s, "alice")
		m.Passed.Add(time.Minute)
		m.Wrong.Set(wrong)
		closeOf(t, s, "bob")
		closeOf(t, s, "alice")
		m.Passed.Add(store.ClosingsKept)
		users, next := closingsAfter(t, s, start)
		require.Equal(t, []string{"bob", "alice"}, users)
		require.Len(t, s.closings.last, 2)
		m.Passed.Add(time.Millisecond)
		users, again := closingsAfter(t, s, start)
		require.Empty(t, users)
		require.Equal(t, next, again)
		require.Empty(t, s.closings.last)
		require.Empty(t, s.closings.asked)
		closeOf(t, s, "carol")
		users, _ = closingsAfter(t, s, start)
		require.Equal(t, []string{"carol"}, users)
	}
}

// TestClosingsAreBounded, and one user who is closed over and over takes the room of one.
func TestClosingsAreBounded(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	t.Parallel()
	s := open(t, Options{})
	_, start := closingsAfter(t, s, "")
	closeOf(t, s, "first")
	for range 3 * store.MaxClosings {
		closeOf(t, s, "often")
	}
	require.Less(t, len(s.closings.asked), 2*minClosings)
	users, _ := closingsAfter(t, s, start)
	require.Equal(t, []string{"first", "often"}, users)
	for n := range store.MaxClosings + 10 {
		closeOf(t, s, fmt.Sprint(n))
	}
	users, _ = closingsAfter(t, s, start)
	require.Len(t, users, store.MaxClosings)
	require.Equal(t, "10", users[0])
	require.Len(t, s.closings.last, store.MaxClosings)
	require.LessOrEqual(t, len(s.closings.asked), store.MaxClosings)
}

// TestClosingsOfAnotherProcess: a place from before a restart returns all that were asked since.
func TestClosingsOfAnotherProcess(t *testing.T) {
	o := Options{}
	s := open(t, o)
	for _, user := range []string{"a", "b", "c"} {
		closeOf(t, s, user)
	}
	_, place := closingsAfter(t, s, "")
	s = open(t, o)
	closeOf(t, s, "d")
	users, _ := closingsAfter(t, s, place)
	require.Equal(t, []string{"d"}, users)
}
