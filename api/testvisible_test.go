package api

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// toContacts makes the users of all namespaces visible to their contacts.
func toContacts(c *Config) { c.Settings.Visibility = VisibleToContacts }

// visibleStores runs a test with a function that opens one kind of store.
func visibleStores(t *testing.T, test func(t *testing.T, open func() store.Store)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		test(t, func() store.Store { return fileStore(t) })
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, func() store.Store { return openRedis(t, redistest.Start(t)) })
	})
}

func openRedis(t testing.TB, url string) store.Store {
	t.Helper()
	s, err := redisstore.Open(redisstore.Options{
		URL: url, Shards: 3, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newVisibleServer serves a store whose users are visible to their contacts, and returns the Authorization headers of
// callers: see [callers].
func newVisibleServer(t *testing.T, s store.Store, changes ...func(*Config)) (*testServer, map[string]string) {
	t.Helper()
	authenticator, headers := callers(t)
	changes = append([]func(*Config){toContacts, func(c *Config) { c.Auth = authenticator }}, changes...)
	return newTestServer(t, s, changes...), headers
}

// know makes users contacts of an owner.
func know(t testing.TB, s store.Store, owner string, contacts ...string) {
	t.Helper()
	require.NoError(t, s.SetContacts(context.Background(), "chat", owner, contacts))
}

// knowAlice makes alice the only contact of many owners.
func knowAlice(t testing.TB, s store.Store, owners []string) {
	t.Helper()
	var calls errgroup.Group // at once: the embedded store flushes them together
	calls.SetLimit(100)
	for _, owner := range owners {
		calls.Go(func() error { return s.SetContacts(context.Background(), "chat", owner, []string{"alice"}) })
	}
	require.NoError(t, calls.Wait())
}

// many returns n user IDs.
func many(n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("u%04d", i)
	}
	return users
}

// appear has a user ping with an idle device, and say something.
func appear(t testing.TB, s store.Store, user string, at lastseen.Instant) {
	t.Helper()
	ctx := context.Background()
	_, err := s.RecordDevices(ctx, "chat", time.Minute, []store.DeviceSighting{
		{User: user, ID: "d", Kind: lastseen.Mobile, At: at, Idle: at},
	})
	require.NoError(t, err)
	_, err = s.SetAvailability(ctx, "chat", user, lastseen.Said{Availability: lastseen.Busy, Note: "of " + user}, at)
	require.NoError(t, err)
}

// loggedStore notes the reads of users, and fails those of contacts if it has to. Real stores do neither on demand.
type loggedStore struct {
	store.Store
	mu        sync.Mutex
	calls     []string
	failAre   error
	failLists error
}

// fail makes reads of contacts fail from now on, unless the errors are nil.
func (s *loggedStore) fail(are, lists error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failAre, s.failLists = are, lists
}

func (s *loggedStore) failures() (are, lists error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failAre, s.failLists
}

func (s *loggedStore) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

// take returns the calls since it was called last.
func (s *loggedStore) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *loggedStore) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	s.note("Lookup %q", users)
	return s.Store.Lookup(ctx, namespace, users)
}

func (s *loggedStore) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	s.note("Describe %q", users)
	return s.Store.Describe(ctx, namespace, users)
}

func (s *loggedStore) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (map[string]store.Details, error) {
	s.note("ReadDetails %v", records)
	return s.Store.ReadDetails(ctx, namespace, records)
}

func (s *loggedStore) ReadDevices(ctx context.Context, namespace, user string) (store.UserDevices, error) {
	s.note("ReadDevices %q", user)
	return s.Store.ReadDevices(ctx, namespace, user)
}

func (s *loggedStore) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	s.note("List")
	return s.Store.List(ctx, namespace, q)
}

func (s *loggedStore) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	s.note("Count")
	return s.Store.Count(ctx, namespace, ranges)
}

func (s *loggedStore) Newest(ctx context.Context, namespace string) (lastseen.Instant, error) {
	s.note("Newest")
	return s.Store.Newest(ctx, namespace)
}

func (s *loggedStore) ListContacts(
	ctx context.Context, namespace, owner, after string, limit int,
) ([]string, error) {
	s.note("ListContacts %q after %q", owner, after)
	if _, err := s.failures(); err != nil {
		return nil, err
	}
	return s.Store.ListContacts(ctx, namespace, owner, after, limit)
}

func (s *loggedStore) AreContacts(
	ctx context.Context, namespace string, pairs []store.ContactPair,
) ([]bool, error) {
	s.note("AreContacts %v", pairs)
	if err, _ := s.failures(); err != nil {
		return nil, err
	}
	return s.Store.AreContacts(ctx, namespace, pairs)
}
