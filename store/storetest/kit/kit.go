// Package kit has what the conformance tests of all capabilities share.
package kit

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Open returns a new and empty store. It is closed with the test, which may close it before.
type Open func(t testing.TB) store.Store

// Cases are tests by name.
type Cases []struct {
	Name string
	Test func(*testing.T, store.Store)
}

// RunEach runs each test on its own store.
func RunEach(t *testing.T, open Open, all Cases) {
	t.Helper()
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) { c.Test(t, open(t)) })
	}
}

// Namespace is the namespace of tests that need only one.
const Namespace = "chat"

// Base is a time in the past.
const Base lastseen.Instant = 1_700_000_000_000

// Here returns the state of a user who is present, last seen at an instant.
func Here(at lastseen.Instant) lastseen.State { return lastseen.State{At: at} }

// Left returns the state of a user who left at an instant.
func Left(at lastseen.Instant) lastseen.State { return lastseen.State{At: at, Left: true} }

// Write is the Ping or the Leave of a store.
type Write func(context.Context, string, []store.PresenceEvent) ([]lastseen.State, error)

// Writes returns both.
func Writes(s store.Store) []Write { return []Write{s.Ping, s.Leave} }

// In makes a write about users at one time and returns their states.
func (w Write) In(t require.TestingT, namespace string, at lastseen.Instant, users ...string) []lastseen.State {
	return w.Send(t, namespace, Events(at, users...))
}

// Send makes the write and returns the states.
func (w Write) Send(t require.TestingT, namespace string, batch []store.PresenceEvent) []lastseen.State {
	states, err := w(context.Background(), namespace, batch)
	require.NoError(t, err)
	require.Len(t, states, len(batch))
	return states
}

// Events returns an event of each user, all at one time.
func Events(at lastseen.Instant, users ...string) []store.PresenceEvent {
	batch := make([]store.PresenceEvent, len(users))
	for i, user := range users {
		batch[i] = store.PresenceEvent{User: user, At: at}
	}
	return batch
}

// Ping pings for a user in the namespace Namespace, and returns the user's state.
func Ping(t require.TestingT, s store.Store, user string, at lastseen.Instant) lastseen.State {
	return Write(s.Ping).In(t, Namespace, at, user)[0]
}

// Leave records that a user left the namespace Namespace, and returns the user's state.
func Leave(t require.TestingT, s store.Store, user string, at lastseen.Instant) lastseen.State {
	return Write(s.Leave).In(t, Namespace, at, user)[0]
}

// Forget deletes users in the namespace Namespace.
func Forget(t require.TestingT, s store.Store, users ...string) {
	for _, user := range users {
		require.NoError(t, s.Forget(context.Background(), Namespace, user))
	}
}

// Lookup returns the states of users in the namespace Namespace.
func Lookup(t require.TestingT, s store.Store, users ...string) []lastseen.State {
	states, _, err := s.Describe(context.Background(), Namespace, users)
	require.NoError(t, err)
	return states
}

// InCallSetter is a store that records until when a user is in a call without a call, in its own tests; 0 for not.
type InCallSetter interface {
	SetInCall(ctx context.Context, namespace, user string, until lastseen.Instant) error
}

// SetInCall calls that method. It skips tests of stores around another one, which do not have it.
func SetInCall(t require.TestingT, s store.Store, namespace, user string, until lastseen.Instant) {
	setter, ok := s.(InCallSetter)
	if skipper, can := t.(interface{ Skip(args ...any) }); !ok && can {
		skipper.Skip("only the tests of the store within can have users be in a call without one")
	}
	require.NoError(t, setter.SetInCall(context.Background(), namespace, user, until))
}

// FirstUsers returns a user in each shard of the namespace Namespace, for a store whose tests say which these are; and
// otherwise one user.
func FirstUsers(s store.Store) []string {
	if sharded, ok := s.(interface {
		FirstUsers(namespace string) []string
	}); ok {
		return sharded.FirstUsers(Namespace)
	}
	return []string{"first"}
}

// Count counts users in the namespace Namespace by range.
func Count(t require.TestingT, s store.Store, ranges ...lastseen.Range) []int64 {
	counts, err := s.Count(context.Background(), Namespace, ranges)
	require.NoError(t, err)
	return counts
}

// Namespaces returns the first namespaces, at most limit.
func Namespaces(t require.TestingT, s store.Store, limit int) []store.NamespaceInfo {
	infos, err := s.Namespaces(context.Background(), "", limit)
	require.NoError(t, err)
	return infos
}

// List returns one page of the namespace Namespace.
func List(t require.TestingT, s store.Store, q store.ListQuery) []store.Record {
	page, err := s.List(context.Background(), Namespace, q)
	require.NoError(t, err)
	return page
}

// Everyone returns the ranges of all users, present and left.
func Everyone() []lastseen.Range {
	return []lastseen.Range{
		{From: lastseen.MinInstant, To: lastseen.MaxInstant},
		{From: lastseen.MinInstant, To: lastseen.MaxInstant, Left: true},
	}
}

// Walk lists page by page to the end.
func Walk(t require.TestingT, s store.Store, q store.ListQuery) []store.Record {
	var all []store.Record
	for n := 1; ; n++ {
		page := List(t, s, q)
		all = append(all, page...)
		if len(page) < q.Limit {
			return all
		}
		require.Less(t, n, 1_000_000, "the walk does not end")
		q.After = &page[len(page)-1]
	}
}

// Crowd pings n users, named by their number in six digits, all at the base.
func Crowd(t require.TestingT, s store.Store, n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("u%06d", i)
	}
	Write(s.Ping).In(t, Namespace, Base, users...)
	return users
}

// Users returns the names in records, in their order.
func Users(records []store.Record) []string {
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.User
	}
	return names
}

// Minute is one in milliseconds.
const Minute = lastseen.Instant(60_000)

// Now returns the time by the store's clock.
func Now(t require.TestingT, s store.Store) lastseen.Instant {
	at, err := s.Now(context.Background())
	require.NoError(t, err)
	return at
}

// Trim deletes, once, users of a namespace last seen before a cutoff. No user's time may be close to the cutoff.
func Trim(t require.TestingT, s store.Store, namespace string, cutoff lastseen.Instant, all bool) store.TrimResult {
	at := Now(t, s)
	age := at.Sub(cutoff)
	result, err := s.Trim(context.Background(), namespace, store.TrimQuery{Age: age, Now: at, All: all})
	require.NoError(t, err)
	return result
}

// Remaining returns all users of the namespace ns.
func Remaining(t require.TestingT, s store.Store) []string {
	return Users(List(t, s, store.ListQuery{Ranges: Everyone(), Limit: 10_000}))
}

// RemoveEmpty reports whether RemoveEmpty removed a namespace.
func RemoveEmpty(t require.TestingT, s store.Store, namespace string) bool {
	removed, err := s.RemoveEmpty(context.Background(), namespace)
	require.NoError(t, err)
	return removed
}

// Existing returns the names of all namespaces.
func Existing(t require.TestingT, s store.Store) (names []string) {
	for _, info := range Namespaces(t, s, 1000) {
		names = append(names, info.Name)
	}
	return names
}

// RemoveWhile removes the namespace ns again and again while writers fill it and empty it, each its own part. What
// was written last is there afterwards.
func RemoveWhile(t *testing.T, s store.Store, fill, empty func(writer, round int) error) {
	t.Helper()
	const writers, rounds = 4, 30
	var removing, writing sync.WaitGroup
	stopped := make(chan struct{})
	removing.Go(func() {
		for {
			select {
			case <-stopped:
				return
			default:
			}
			if _, err := s.RemoveEmpty(context.Background(), Namespace); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for w := range writers {
		writing.Go(func() {
			for i := range rounds {
				err := fill(w, i)
				if err == nil && i < rounds-1 {
					err = empty(w, i)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(stopped)
	removing.Wait()
	require.False(t, t.Failed())
	require.Equal(t, []string{Namespace}, Existing(t, s))
	require.False(t, RemoveEmpty(t, s, Namespace))
}

// OddIDs returns every code point whose UTF-8 differs in a new byte, the longest IDs, and some that are similar or have
// a meaning elsewhere.
func OddIDs() []string {
	var ids []string
	seen := map[byte]bool{}
	for r, step := rune(1), rune(1); r <= utf8.MaxRune; r += step {
		if r == 0x800 {
			step = 0x800 // from here on, only a multiple of it can have a new byte
		}
		if unicode.IsControl(r) || !utf8.ValidRune(r) {
			continue
		}
		id := string(r)
		fresh := false
		for i := range len(id) {
			fresh = fresh || !seen[id[i]]
			seen[id[i]] = true
		}
		if fresh && id != "." {
			ids = append(ids, id, strings.Repeat(id, lastseen.MaxUserLen/len(id)))
		}
	}
	ids = append(ids, "a", "A", "a ", " a", "a/b", "a:b", "a%2Fb", "+", "(", "[", "-inf", "+inf",
		"1", "-1", "é", "é", "...")
	slices.Sort(ids)
	return slices.Compact(ids)
}

// DrawUser draws one of ten users.
var DrawUser = rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("u", rapid.IntRange(0, 9).Draw(t, "u")) })

// Method calls a method of a store in a way that succeeds on a namespace that can have what the method is about.
type Method func(context.Context) error

// ErrorOf returns only the error of a result.
func ErrorOf[T any](_ T, err error) error { return err }

// AgeQuery asks for what is longer ago than an hour.
func AgeQuery(ctx context.Context, s store.Store) (store.TrimQuery, error) {
	at, err := s.Now(ctx)
	return store.TrimQuery{Age: time.Hour, Now: at, All: true}, err
}

// Breakable is a store, and what a test can do to it. Functions that are nil are left out.
type Breakable struct {
	store.Store
	// Restart ends the store's process and returns the store that another one has, with all writes. The test closes
	// neither of them.
	Restart func() store.Store
	Lasting bool // a feed, and who is in a call, outlast Restart
	Talks   bool // users set an availability, and become invisible without waiting for other servers
	// Fault does anything to the store, such as a failover that loses the newest writes, and returns when it works
	// again. Until then nothing is called.
	Fault func()
	// Pass lets time pass, by all clocks.
	Pass func(time.Duration)
	// Step sets the store's clock forward or back. It returns when the store goes by it, and the time that passed.
	Step func(time.Duration) (passed time.Duration)
}

// HeapInUse returns how many bytes of the heap are in use, after a collection of garbage.
func HeapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Machine is a machine whose clocks a test sets, while goroutines of a store read them. It starts at Base.
type Machine struct {
	Passed Span // since Base, truly
	Wrong  Span // how far its clock is off
}

// Span is a time span that a test sets.
type Span struct{ ns atomic.Int64 }

// Get returns the span.
func (s *Span) Get() time.Duration { return time.Duration(s.ns.Load()) }

// Set sets the span.
func (s *Span) Set(d time.Duration) { s.ns.Store(int64(d)) }

// Add makes the span longer.
func (s *Span) Add(d time.Duration) { s.ns.Add(int64(d)) }

// Wall returns what the machine's clock shows.
func (m *Machine) Wall() time.Time {
	return time.UnixMilli(int64(Base)).Add(m.Passed.Get() + m.Wrong.Get())
}

// Instant returns the same as an instant.
func (m *Machine) Instant() lastseen.Instant { return lastseen.InstantOf(m.Wall()) }

// Monotonic returns the time that has passed.
func (m *Machine) Monotonic() time.Duration { return m.Passed.Get() }
