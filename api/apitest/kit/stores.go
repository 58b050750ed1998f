// Package kit has what tests of package api share and what does not import it, so that its own tests can also use it:
// stores, callers, requests, and the check that responses are as in openapi.yaml.
package kit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// ContactStore is a store whose contacts cannot be read at times, and which counts these calls. Real stores do not fail
// on demand.
type ContactStore struct {
	store.Store
	Fails atomic.Bool
	Pairs atomic.Int64 // that were asked for
	Most  atomic.Int64 // pairs in one call
}

func (s *ContactStore) err() error {
	if s.Fails.Load() {
		return fmt.Errorf("%w: contacts cannot be read", store.ErrUnavailable)
	}
	return nil
}

func (s *ContactStore) AreContacts(ctx context.Context, namespace string, pairs []store.ContactPair) ([]bool, error) {
	s.Pairs.Add(int64(len(pairs)))
	s.Most.Store(max(s.Most.Load(), int64(len(pairs))))
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.AreContacts(ctx, namespace, pairs)
}

func (s *ContactStore) ListContacts(ctx context.Context, namespace, owner, after string, limit int) ([]string, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.ListContacts(ctx, namespace, owner, after, limit)
}

// ClockStore is a store whose clock a test sets.
type ClockStore struct {
	store.Store
	now atomic.Int64
}

// NewClockStore returns a store at the time when a test starts.
func NewClockStore(s store.Store) *ClockStore {
	c := &ClockStore{Store: s}
	c.Set(Now)
	return c
}

// Set sets the time.
func (c *ClockStore) Set(now lastseen.Instant) { c.now.Store(int64(now)) }

// Pass adds milliseconds to the time.
func (c *ClockStore) Pass(ms int64) { c.now.Add(ms) }

func (c *ClockStore) Now(ctx context.Context) (lastseen.Instant, error) {
	if _, err := c.Store.Now(ctx); err != nil {
		return 0, err
	}
	return lastseen.Instant(c.now.Load()), nil
}

// FileStore opens an embedded store.
func FileStore(t *testing.T) store.Store {
	t.Helper()
	return OpenFileStore(t, filestore.Options{})
}

// OpenFileStore is [FileStore] with options.
func OpenFileStore(t testing.TB, o filestore.Options) store.Store {
	t.Helper()
	o.Path, o.Sync, o.Logger = storetest.DataFile(t), time.Second, slog.New(slog.DiscardHandler)
	s, err := filestore.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// RedisStore opens a store on a Redis. The changes apply to its options.
func RedisStore(t testing.TB, url string, changes ...func(*redisstore.Options)) *redisstore.Store {
	t.Helper()
	o := redisstore.Options{URL: url}
	for _, change := range changes {
		change(&o)
	}
	return stores.New(t, o)
}

// Sharded has a namespace use three keys.
func Sharded(o *redisstore.Options) { o.Shards = 3 }

// ListenedStore is a store that reports when it has begun to listen.
type ListenedStore struct {
	store.Store
	Listens func()
}

// Unwrap returns the store.
func (s ListenedStore) Unwrap() store.Store { return s.Store }

func (s ListenedStore) Listen(ctx context.Context, receive func(store.Signal)) {
	s.Store.Listen(ctx, func(signal store.Signal) {
		if signal.Kind == SignalProbe {
			s.Listens()
		}
		receive(signal)
	})
}

// SignalProbe is the kind of the signals by which [apitest.NewSocketServerOn] notices that the server listens.
const SignalProbe = "probe"

// SetContacts makes users contacts of an owner.
func SetContacts(t testing.TB, s store.Store, owner string, contacts ...string) {
	t.Helper()
	require.NoError(t, s.SetContacts(context.Background(), "chat", owner, contacts))
}

// LoggedStore notes the reads of users, and fails those of contacts if it has to. Real stores do neither on demand.
type LoggedStore struct {
	store.Store
	mu        sync.Mutex
	calls     []string
	failAre   error
	failLists error
}

// Fail makes reads of contacts fail from now on, unless the errors are nil.
func (s *LoggedStore) Fail(are, lists error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failAre, s.failLists = are, lists
}

func (s *LoggedStore) failures() (are, lists error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failAre, s.failLists
}

func (s *LoggedStore) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

// Take returns the calls since it was called last.
func (s *LoggedStore) Take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *LoggedStore) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	s.note("Describe %q", users)
	return s.Store.Describe(ctx, namespace, users)
}

func (s *LoggedStore) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (map[string]store.Details, error) {
	s.note("ReadDetails %v", records)
	return s.Store.ReadDetails(ctx, namespace, records)
}

func (s *LoggedStore) ReadDevices(ctx context.Context, namespace, user string) (store.UserDevices, error) {
	s.note("ReadDevices %q", user)
	return s.Store.ReadDevices(ctx, namespace, user)
}

func (s *LoggedStore) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	s.note("List")
	return s.Store.List(ctx, namespace, q)
}

func (s *LoggedStore) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	s.note("Count")
	return s.Store.Count(ctx, namespace, ranges)
}

func (s *LoggedStore) Newest(ctx context.Context, namespace string) (lastseen.Instant, error) {
	s.note("Newest")
	return s.Store.Newest(ctx, namespace)
}

func (s *LoggedStore) ListContacts(
	ctx context.Context, namespace, owner, after string, limit int,
) ([]string, error) {
	s.note("ListContacts %q after %q", owner, after)
	if _, err := s.failures(); err != nil {
		return nil, err
	}
	return s.Store.ListContacts(ctx, namespace, owner, after, limit)
}

func (s *LoggedStore) AreContacts(
	ctx context.Context, namespace string, pairs []store.ContactPair,
) ([]bool, error) {
	s.note("AreContacts %v", pairs)
	if err, _ := s.failures(); err != nil {
		return nil, err
	}
	return s.Store.AreContacts(ctx, namespace, pairs)
}

// NewRedis returns a store on a new Redis.
func NewRedis(t *testing.T) store.Store {
	t.Helper()
	return RedisStore(t, redistest.Start(t))
}
