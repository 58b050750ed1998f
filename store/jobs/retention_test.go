package jobs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// retentionTest is a job whose pauses take no time but by the clocks, which they set forward.
type retentionTest struct {
	*Retention
	kit.Machine // the store goes by them, too
	log         bytes.Buffer
	cancel      context.CancelFunc
	ctx         context.Context
	stopAt      time.Duration // of all pauses together
	meantime    func()        // called in every pause
}

func newRetentionTest(t *testing.T, stopAt time.Duration) *retentionTest {
	j := &retentionTest{stopAt: stopAt, meantime: func() {}}
	j.ctx, j.cancel = context.WithCancel(t.Context())
	j.Retention = newSteadyRetention(nil, slog.New(slog.NewTextHandler(&j.log, nil)))
	j.pause, j.monotonic = j.pass, j.Monotonic
	return j
}

// newSteadyRetention returns a job that relies on the store's clock from the start, keeps users for an hour, and visits
// one namespace at a time.
func newSteadyRetention(s store.Store, logger *slog.Logger) *Retention {
	hour := func(string) time.Duration { return time.Hour }
	never := func(string) time.Duration { return 0 }
	configured := func(string) bool { return true }
	r := NewRetention(s, RetentionRules{Users: hour, Contacts: never, Configured: configured}, logger)
	r.clock.steadyAt, r.workers = 0, 1
	return r
}

func (j *retentionTest) pass(_ context.Context, d time.Duration) {
	j.Passed.Add(d)
	j.meantime()
	if j.stopAt -= d; j.stopAt <= 0 {
		j.cancel()
	}
}

// openFile gives the job a store in a file, on its clock.
func (j *retentionTest) openFile(t *testing.T) *filestore.Store {
	t.Helper()
	s := openFile(t, time.Hour, j.Wall, j.Monotonic)
	j.store = s
	return s
}

// ping records users in a namespace as seen so long before the clock's first time.
func ping(t *testing.T, s store.Store, namespace string, ages map[string]time.Duration) {
	t.Helper()
	var batch []store.PresenceEvent
	for user, age := range ages {
		batch = append(batch, store.PresenceEvent{User: user, At: lastseen.Instant(1_700_000_000_000).Add(-age)})
	}
	kit.Write(s.Ping).Send(t, namespace, batch)
}

// addOld adds so many users who are past their retention.
func addOld(ages map[string]time.Duration, users int) {
	for n := range users {
		ages[fmt.Sprint(n)] = 2 * time.Hour
	}
}

// requireUsers requires that just these users are in a namespace.
func requireUsers(t *testing.T, s store.Store, namespace string, want ...string) {
	t.Helper()
	q := store.ListQuery{Limit: 10, Ranges: []lastseen.Range{{From: 1, To: lastseen.MaxInstant}}}
	records, err := s.List(context.Background(), namespace, q)
	require.NoError(t, err)
	users := []string{}
	for _, r := range records {
		users = append(users, r.User)
	}
	require.ElementsMatch(t, want, users, namespace)
}

// TestRetention deletes the users past their namespace's retention, and no others.
func TestRetention(t *testing.T) {
	j := newRetentionTest(t, 2*roundEvery)
	s := j.openFile(t)
	ages := map[string]time.Duration{"young": 30 * time.Minute, "old": 2 * time.Hour, "older": 4 * time.Hour}
	namespaces := []string{"forever", "long"}
	for n := range listPage + 2 { // more than are read at once
		namespaces = append(namespaces, fmt.Sprintf("room-%04d", n))
	}
	for _, namespace := range namespaces {
		ping(t, s, namespace, ages)
	}
	j.rules.Users = func(namespace string) time.Duration {
		switch namespace {
		case "forever":
			return 0
		case "long":
			return 3 * time.Hour
		default:
			return time.Hour
		}
	}
	j.Run(j.ctx)
	requireUsers(t, s, "forever", "young", "old", "older")
	requireUsers(t, s, "long", "young", "old")
	for _, namespace := range namespaces[2:] {
		requireUsers(t, s, namespace, "young")
	}
	require.Equal(t, len(namespaces)-1, strings.Count(j.log.String(), "deleted users"),
		"a line for each namespace that users were deleted from")
}

// watched is a store that notes what the job does, and when by its clock.
type watched struct {
	store.Store
	clock  func() time.Duration
	mu     sync.Mutex
	trims  map[string][]time.Duration // by namespace
	leases []time.Duration
	lease  func() (bool, error)

	released int
	fail     map[string]error // what trimming a namespace fails with
	endless  bool             // Trim deletes as many users as it may, each time
	ready    error
	during   func() // called in every Trim
}

func (j *retentionTest) watch(s store.Store) *watched {
	w := &watched{
		Store: s, clock: j.Monotonic, trims: map[string][]time.Duration{}, fail: map[string]error{},
		lease: func() (bool, error) { return true, nil }, during: func() {},
	}
	j.store = w
	return w
}

func (w *watched) Trim(ctx context.Context, namespace string, q store.TrimQuery) (store.TrimResult, error) {
	w.during()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trims[namespace] = append(w.trims[namespace], w.clock())
	if err := w.fail[namespace]; err != nil {
		return store.TrimResult{}, err
	}
	if w.endless {
		return store.TrimResult{Deleted: store.MaxTrim}, nil
	}
	return w.Store.Trim(ctx, namespace, q)
}

func (w *watched) Lease(_ context.Context, name string, ttl time.Duration) (bool, error) {
	if name == "janitor" && ttl == time.Millisecond {
		w.released++
		return true, nil
	}
	if name != "janitor" || ttl != leaseTime {
		return false, fmt.Errorf("lease %s for %s", name, ttl)
	}
	w.leases = append(w.leases, w.clock())
	return w.lease()
}

func (w *watched) Ready(context.Context) error { return w.ready }

func TestRetentionErasesInSmallCalls(t *testing.T) {
	j := newRetentionTest(t, roundEvery)
	s := j.openFile(t)
	edge := time.Hour - 2*trimPause // the last call finds it an hour old
	ages := map[string]time.Duration{"young": 0, "edge": edge, "beyond": edge + time.Millisecond}
	addOld(ages, 2*store.MaxTrim+1)
	ping(t, s, "chat", ages)
	w := j.watch(s)
	j.Run(j.ctx)
	requireUsers(t, s, "chat", "young", "edge")
	require.Equal(t, []time.Duration{0, trimPause, 2 * trimPause}, w.trims["chat"])
	require.Equal(t, 1, strings.Count(j.log.String(), "deleted users"))
	require.Contains(t, j.log.String(), "namespace=chat users=2002")
}

// TestRetentionUsesCurrentSettings: a reload takes effect at once, also while it erases.
func TestRetentionUsesCurrentSettings(t *testing.T) {
	j := newRetentionTest(t, roundEvery)
	s := j.openFile(t)
	w := j.watch(s)
	keep := time.Hour
	j.rules.Users = func(string) time.Duration { return keep }
	ages := map[string]time.Duration{"young": 0}
	addOld(ages, 2*store.MaxTrim)
	ping(t, s, "chat", ages)
	j.meantime = func() { keep = 0 }
	j.Run(j.ctx)
	require.Len(t, w.trims["chat"], 1)
}

// slowClock is a store during whose answer about the time something happens.
type slowClock struct {
	store.Store
	meantime func()
}

func (s slowClock) Now(ctx context.Context) (lastseen.Instant, error) {
	s.meantime()
	return s.Store.Now(ctx)
}

// TestRetentionUsesNoOldSetting: a reload may come while the job waits for the store's clock.
func TestRetentionUsesNoOldSetting(t *testing.T) {
	j := newRetentionTest(t, time.Hour)
	s := j.openFile(t)
	ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 2 * time.Hour})
	know(t, s, "chat", "idle", "seen")
	j.Passed.Add(2 * time.Hour)
	j.seeAgain(t, s, "chat")
	var keep time.Duration
	j.rules.Users = func(string) time.Duration { return keep }
	j.rules.Contacts = j.rules.Users
	j.store = slowClock{s, func() { keep = 0 }}
	keep = time.Hour
	require.NoError(t, j.trimUsers(j.ctx, store.NamespaceInfo{Name: "chat"}))
	require.Zero(t, keep)
	keep = time.Hour
	require.NoError(t, j.trimContacts(j.ctx, "chat"))
	require.Zero(t, keep)
	require.Zero(t, j.Stats())
	requireUsers(t, s, "chat", "young", "old", "seen")
	requireOwners(t, s, "chat", "idle", "seen")
}

// TestRetentionRemovesEmptyNamespaces, also where no namespace has a retention.
func TestRetentionRemovesEmptyNamespaces(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Hour} {
		j := newRetentionTest(t, 30*roundEvery)
		s := j.openFile(t)
		j.rules.Users = func(string) time.Duration { return keep }
		j.rules.Configured = func(namespace string) bool { return namespace == "configured" }
		require.NoError(t, s.Register(j.ctx, []string{"configured", "empty"}))
		for n := range listPage + 1 {
			namespace := fmt.Sprintf("room-%03d", n)
			ping(t, s, namespace, map[string]time.Duration{"gone": 0})
			require.NoError(t, s.Forget(j.ctx, namespace, "gone"))
		}
		ping(t, s, "full", map[string]time.Duration{"young": 0})
		ping(t, s, "old", map[string]time.Duration{"old": 2 * time.Hour})
		j.Run(j.ctx)
		infos := kit.Namespaces(t, s, 10)
		want := []string{"configured", "full", "old"}
		if keep > 0 {
			want = want[:2] // emptied, and then removed
		}
		var got []string
		for _, info := range infos {
			got = append(got, info.Name)
		}
		require.Equal(t, want, got)
	}
}

// TestRetentionStats counts deleted users, and has the end of the last round on the server that has the lease.
func TestRetentionStats(t *testing.T) {
	j := newRetentionTest(t, 3*roundEvery)
	s := j.openFile(t)
	for _, namespace := range []string{"chat", "game"} {
		ping(t, s, namespace, map[string]time.Duration{"young": 0, "old": 2 * time.Hour, "older": 3 * time.Hour})
	}
	w := j.watch(s)
	granted := true
	w.lease = func() (bool, error) { return granted, nil }
	require.Zero(t, j.Stats())
	j.meantime = func() {
		switch at := j.Monotonic(); {
		case at == roundEvery/2: // the first round visits the second namespace
			require.Equal(t, RetentionStats{Deleted: 2}, j.Stats())
		case at == roundEvery:
			end := j.Instant().Add(-roundEvery / 2)
			require.Equal(t, RetentionStats{Deleted: 4, LastRound: end}, j.Stats())
			w.fail["chat"], w.ready = store.ErrUnavailable, store.ErrUnavailable
		case at > roundEvery && at < 2*roundEvery:
			require.Equal(t, lastseen.Instant(1_700_000_000_000).Add(roundEvery/2), j.Stats().LastRound,
				"the round that ended early does not count")
			granted = false
		}
	}
	j.Run(j.ctx)
	require.Equal(t, RetentionStats{Deleted: 4}, j.Stats(), "another server has the lease")
}
