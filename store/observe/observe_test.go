package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

func TestMain(m *testing.M) {
	testenv.LimitWalks(100)
	os.Exit(m.Run())
}

func openFile(t testing.TB) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(filestore.Options{
		Path: storetest.DataFile(t), Sync: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestConformance: a store that is measured keeps the contract.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t testing.TB) store.Store { return Store(openFile(t), NewCalls()) })
	})
	t.Run("in batches", func(t *testing.T) {
		testenv.RequireFull(t)
		t.Parallel()
		storetest.RunCore(t, func(t testing.TB) store.Store {
			s := Batcher(storetest.OneByOne{Store: openFile(t)}, NewCalls())
			return coalesce.New(s, coalesce.Options{Timeout: time.Minute})
		})
	})
}

// sample is the value of a gauge, or what a histogram observed.
type sample struct {
	gauge, sum float64
	count      uint64
}

// gathered returns the metrics of a collector, by name and values of labels.
func gathered(t *testing.T, c prometheus.Collector) map[string]sample {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]sample{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			h := m.GetHistogram()
			all[name] = sample{m.GetGauge().GetValue(), h.GetSampleSum(), h.GetSampleCount()}
		}
	}
	return all
}

// measured are the calls that were measured: their number, and the seconds of all of them, by operation and outcome.
func measured(t *testing.T, c prometheus.Collector) (calls map[string]uint64, seconds map[string]float64) {
	t.Helper()
	calls, seconds = map[string]uint64{}, map[string]float64{}
	for name, m := range gathered(t, c) {
		if m.count > 0 {
			calls[name], seconds[name] = m.count, m.sum
		}
	}
	return calls, seconds
}

const callMetric = "lastseen_store_call_duration_seconds "

// TestCalls makes each call once. The clock moves by a second each time it is read.
func TestCalls(t *testing.T) {
	c := NewCalls()
	var at time.Duration
	c.now = func() time.Duration { at += time.Second; return at }
	s, ctx := Store(openFile(t), c), t.Context()
	now := kit.Now(t, s)
	batch := []store.PresenceEvent{{User: "alice", At: now}, {User: "bob", At: now}}
	call := store.NewCall{ID: "1", From: "alice", To: "bob", Ring: time.Minute, Timeout: time.Minute}
	for _, do := range []func() error{
		func() error { _, err := s.Ping(ctx, "chat", batch); return err },
		func() error { _, err := s.Ping(ctx, "game", batch); return err },
		func() error { _, err := s.Leave(ctx, "chat", batch); return err },
		func() error { _, err := s.Count(ctx, "chat", []lastseen.Range{{From: 1, To: now}}); return err },
		func() error { _, err := s.Newest(ctx, "chat"); return err },
		func() error { _, err := s.List(ctx, "chat", store.ListQuery{Limit: 1}); return err },
		func() error { return s.Forget(ctx, "chat", "alice") },
		func() error { _, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: now}); return err },
		func() error { _, err := s.Namespaces(ctx, "", 10); return err },
		func() error { _, err := s.Exist(ctx, []string{"new"}); return err },
		func() error { return s.Register(ctx, []string{"feed"}) },
		func() error { _, err := s.RemoveEmpty(ctx, "new"); return err },
		func() error { return s.DeleteNamespace(ctx, "chat") },
		func() error { _, err := s.Lease(ctx, "janitor", time.Minute); return err },
		func() error { _, err := s.Note(ctx, "janitor", "a"); return err },
		func() error { _, err := s.Notes(ctx, "janitor"); return err },
		func() error { _, err := s.SetNote(ctx, "janitor", "a", "", store.Note{Version: "1"}); return err },
		func() error { return s.Ready(ctx) },
		func() error { _, err := s.Secret(ctx); return err },
		func() error { return s.RecordChanges(ctx, "feed", lastseen.Thresholds{Green: 1e9, Yellow: 2e9}) },
		func() error { _, err := s.SnapshotChanges(ctx, "feed", nil); return err },
		func() error { _, _, err := s.ScanUsers(ctx, "feed", "", 1); return err },
		func() error { s.ReadChanges(ctx, []*store.ChangesRead{{Namespace: "feed", Limit: 1}}); return nil },
		func() error { s.AdvanceChanges(ctx, []*store.ChangesAdvance{{Namespace: "feed"}}); return nil },
		func() error {
			devices := []store.DeviceEvent{{User: "alice", ID: "tab", Kind: lastseen.Web, At: now}}
			_, err := s.RecordDevices(ctx, "chat", time.Minute, devices)
			return err
		},
		func() error { _, err := s.ReadDevices(ctx, "chat", "alice"); return err },
		func() error { return s.CloseConnections(ctx, "chat", "alice") },
		func() error { _, _, err := s.Disconnects(ctx, ""); return err },
		func() error {
			away := lastseen.AvailabilityState{Availability: lastseen.Away}
			_, err := s.SetAvailability(ctx, "chat", "alice", away, now)
			return failure(err)
		},
		func() error { _, err := s.ReadAvailability(ctx, "chat", "alice", now); return err },
		func() error { _, _, err := s.Describe(ctx, "chat", []string{"alice"}); return err },
		func() error { _, err := s.ReadDetails(ctx, "chat", []store.Record{{User: "alice"}}); return err },
		func() error { return failure(s.SetContacts(ctx, "chat", "alice", []string{"bob"})) },
		func() error { return failure(s.ChangeContacts(ctx, "chat", "alice", nil, []string{"bob"})) },
		func() error { _, err := s.ListContacts(ctx, "chat", "alice", "", 1); return failure(err) },
		func() error { _, err := s.AreContacts(ctx, "chat", nil); return failure(err) },
		func() error { _, err := s.TrimContacts(ctx, "chat", store.TrimQuery{}); return failure(err) },
		func() error { _, err := s.StartCall(ctx, "chat", call); return failure(err) },
		func() error {
			_, err := s.StepCall(ctx, "chat", store.CallAct{ID: call.ID})
			return failure(err)
		},
		func() error { _, err := s.KeepCallsAlive(ctx, "chat", nil); return failure(err) },
		func() error { _, err := store.ReadCall(ctx, s, "chat", call.ID); return failure(err) },
		func() error { _, err := s.ExpireCalls(ctx, "chat"); return failure(err) },
		func() error { _, err := s.CallNamespaces(ctx, "", 1); return err },
		func() error { return s.Signal(ctx, store.Signal{Kind: "test", Namespace: "chat", User: "alice"}) },
	} {
		require.NoError(t, do())
	}
	calls, seconds := measured(t, c)
	want := map[string]uint64{}
	for _, name := range operations() {
		want[callMetric+name+" ok"] = 1
	}
	want[callMetric+"ping ok"], want[callMetric+"note ok"] = 2, 3
	require.Equal(t, want, calls)
	require.InDelta(t, 2, seconds[callMetric+"ping ok"], 1e-9)
	require.InDelta(t, 1, seconds[callMetric+"ready ok"], 1e-9)
}

// TestBatchesAreOneCall to Redis, however many calls they have.
func TestBatchesAreOneCall(t *testing.T) {
	c := NewCalls()
	s := Batcher(stores.New(t, redisstore.Options{URL: redistest.Start(t)}), c)
	pings := []*store.Batch[store.PresenceEvent]{
		{Namespace: "chat", Items: []store.PresenceEvent{{User: "alice", At: 1}}},
		{Namespace: "game", Items: []store.PresenceEvent{{User: "alice", At: 1}, {User: "bob", At: 1}}},
	}
	s.PingBatches(t.Context(), pings)
	require.NoError(t, pings[1].Err)
	lookups := []*store.Batch[string]{{Namespace: "chat", Items: []string{"alice"}}}
	s.LookupBatches(t.Context(), lookups)
	require.Equal(t, []lastseen.State{{At: 1}}, lookups[0].States)
	calls, _ := measured(t, c)
	require.Equal(t, map[string]uint64{callMetric + "ping ok": 1, callMetric + "lookup ok": 1}, calls)

	require.NoError(t, s.Close())
	s.PingBatches(t.Context(), pings)
	calls, _ = measured(t, c)
	require.EqualValues(t, 1, calls[callMetric+"ping error"])
}

// TestCallsOfChanges: several reads or advances are one call, and the absence of a feed is no error.
func TestCallsOfChanges(t *testing.T) {
	c := NewCalls()
	s := Store(openFile(t), c)
	reads := []*store.ChangesRead{{Namespace: "none", Limit: 1}, {Namespace: "other", Limit: 1}}
	advances := []*store.ChangesAdvance{{Namespace: "none"}, {Namespace: "other"}}
	all := func() {
		s.ReadChanges(t.Context(), reads)
		s.AdvanceChanges(t.Context(), advances)
		_, _ = s.SnapshotChanges(t.Context(), "none", nil)
	}
	all()
	require.ErrorIs(t, reads[1].Err, store.ErrNotRecorded)
	require.ErrorIs(t, advances[1].Err, store.ErrNotRecorded)
	require.NoError(t, s.Close())
	all()
	require.ErrorIs(t, s.RecordChanges(t.Context(), "none", lastseen.Thresholds{}), store.ErrClosed)
	calls, _ := measured(t, c)
	require.Equal(t, map[string]uint64{
		callMetric + "read_changes ok": 1, callMetric + "read_changes error": 1,
		callMetric + "sweep_changes ok": 1, callMetric + "sweep_changes error": 1,
		callMetric + "snapshot_changes ok": 1, callMetric + "snapshot_changes error": 1,
		callMetric + "record_changes error": 1,
	}, calls)
}

// TestOutcomes of errors, as stores wrap them.
func TestOutcomes(t *testing.T) {
	for err, want := range map[error]string{
		store.ErrUnavailable: "unavailable", store.ErrFull: "full", store.ErrNamespaceLimit: "full",
		store.ErrOverloaded: "overloaded", context.Canceled: "canceled", context.DeadlineExceeded: "unavailable",
		store.ErrWrongType: "error", store.ErrMismatch: "error", store.ErrClosed: "error", errors.New("x"): "error",
	} {
		require.Equal(t, want, outcome(fmt.Errorf("%w: cause", err)), err)
	}
	require.Equal(t, "unavailable", outcome(errors.Join(store.ErrUnavailable, context.DeadlineExceeded)))
}

// TestNothingIsHidden: what stores have beyond the contract is found behind the wrappers.
func TestNothingIsHidden(t *testing.T) {
	type clocked interface{ ClockStats() clock.Stats }
	file := openFile(t)
	s := Store(file, NewCalls())
	found, ok := store.As[*filestore.Store](s)
	require.True(t, ok)
	require.Same(t, file, found)
	_, ok = store.As[clocked](s)
	require.True(t, ok)
	_, ok = store.As[*redisstore.Store](s)
	require.False(t, ok)

	redis := stores.New(t, redisstore.Options{URL: redistest.Start(t)})
	queued := coalesce.New(Batcher(redis, NewCalls()), coalesce.Options{})
	behind, ok := store.As[*redisstore.Store](queued)
	require.True(t, ok)
	require.Same(t, redis, behind)
	outer, ok := store.As[*coalesce.Store](Store(queued, NewCalls()))
	require.True(t, ok)
	require.Same(t, queued, outer)
}

// TestLabelsAreBounded whatever namespaces and users there are.
func TestLabelsAreBounded(t *testing.T) {
	c := NewCalls()
	s := Store(openFile(t), c)
	before := testutil.CollectAndCount(c)
	for n := range 500 {
		name := fmt.Sprint("x", n)
		kit.Write(s.Ping).Send(t, name, []store.PresenceEvent{{User: name, At: 1}})
		_, _, err := s.Describe(t.Context(), name, []string{name})
		require.NoError(t, err)
	}
	require.Equal(t, before, testutil.CollectAndCount(c))
}

// TestBatches has exact values, and ignores kinds it does not know.
func TestBatches(t *testing.T) {
	r := prometheus.NewRegistry()
	observe := NewBatches(r, "ping", "lookup")
	observe("ping", 3, 2*time.Second)
	observe("ping", 5, 0)
	observe("other", 1, time.Second)
	counts, sums := measured(t, r)
	require.Equal(t, map[string]uint64{"lastseen_batch_members ping": 2, "lastseen_queue_wait_seconds ping": 2}, counts)
	require.Equal(t, map[string]float64{"lastseen_batch_members ping": 8, "lastseen_queue_wait_seconds ping": 2}, sums)
}
