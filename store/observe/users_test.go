package observe

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// counting is a store whose counts a test observes, delays and fails.
type counting struct {
	store.Store
	during func()
	err    error
	calls  atomic.Int64
}

func (s *counting) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	s.calls.Add(1)
	s.during()
	if s.err != nil && namespace == "chat" {
		return nil, s.err
	}
	return s.Store.Count(ctx, namespace, ranges)
}

// newUsers counts users of chat, where there is one of each status and one who left, and of an empty namespace. It
// returns the clock of the cache, too.
func newUsers(t *testing.T, s store.Store) (u *Users, c *counting, at *atomic.Int64) {
	t.Helper()
	now := kit.Now(t, s)
	_, err := s.Ping(t.Context(), "chat", []store.PresenceEvent{
		{User: "green", At: now}, {User: "yellow", At: now.Add(-2 * time.Hour)}, {User: "grey", At: now.Add(-5 * time.Hour)},
	})
	require.NoError(t, err)
	kit.Leave(t, s, "left", now)
	c, at = &counting{Store: s, during: func() {}}, new(atomic.Int64)
	thresholds := lastseen.Thresholds{Green: time.Hour, Yellow: 3 * time.Hour}
	u = NewUsers(c, func() []Namespace { return []Namespace{{"chat", thresholds}, {"empty", thresholds}} })
	u.now = func() time.Time { return time.Unix(1, at.Load()) }
	return u, c, at
}

// users returns the values of the metric, by namespace and status.
func users(t *testing.T, u *Users) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for name, m := range gathered(t, u) {
		values[strings.TrimPrefix(name, "lastseen_users ")] = m.gauge
	}
	return values
}

func TestUsers(t *testing.T) {
	for name, open := range map[string]func(testing.TB) store.Store{
		"file":  func(t testing.TB) store.Store { return openFile(t) },
		"redis": func(t testing.TB) store.Store { return stores.New(t, redisstore.Options{URL: redistest.Start(t)}) },
	} {
		t.Run(name, func(t *testing.T) {
			u, c, at := newUsers(t, open(t))
			want := map[string]float64{
				"chat green": 1, "chat yellow": 1, "chat grey": 2, "empty green": 0, "empty yellow": 0, "empty grey": 0,
			}
			require.Equal(t, want, users(t, u))
			require.NoError(t, c.Forget(t.Context(), "chat", "left"))
			at.Add(int64(usersFor - 1))
			require.Equal(t, want, users(t, u), "kept")
			require.EqualValues(t, 2, c.calls.Load())
			at.Add(1)
			want["chat grey"] = 1
			require.Equal(t, want, users(t, u), "counted again")

			at.Add(int64(usersFor))
			c.err = store.ErrUnavailable
			require.Equal(t, map[string]float64{"empty green": 0, "empty yellow": 0, "empty grey": 0}, users(t, u),
				"unknown is not zero")
		})
	}
}

// TestUsersAreCountedOnce however many scrapes there are at the same time.
func TestUsersAreCountedOnce(t *testing.T) {
	u, c, _ := newUsers(t, openFile(t))
	began, release := make(chan struct{}, 100), make(chan struct{})
	c.during = func() { began <- struct{}{}; <-release }
	var scrapes sync.WaitGroup
	for range 10 {
		scrapes.Go(func() { u.recent() })
	}
	<-began
	close(release)
	scrapes.Wait()
	require.EqualValues(t, 2, c.calls.Load(), "one for each namespace")
}

// TestUsersOfManyNamespaces: a metric for each would be too many.
func TestUsersOfManyNamespaces(t *testing.T) {
	u, c, _ := newUsers(t, openFile(t))
	u.namespaces = func() []Namespace {
		many := make([]Namespace, MaxNamespaces+50)
		for n := range many {
			many[n] = Namespace{fmt.Sprint("room", n), lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}}
		}
		return many
	}
	require.Len(t, users(t, u), 3*MaxNamespaces)
	require.EqualValues(t, MaxNamespaces, c.calls.Load())
}
