package observe

import (
	"cmp"
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Store returns s with its calls measured. What s has beyond a [store.Store] is found with [store.As].
//
// Now is not measured: it hardly ever makes a call. A call with several reads or advances of changes is one call; its
// outcome is that of the first one that failed. Errors that are results, such as that there is no feed, do not count.
func Store(s store.Store, c *Calls) store.Store { return &observed{s, c} }

// Batcher returns s with its calls measured. A call with several batches is one call; its outcome is that of the first
// batch that failed.
func Batcher(s store.Batcher, c *Calls) store.Batcher { return &observedBatcher{observed{s, c}, s} }

type observed struct {
	store.Store
	meter meter
}

// meter notices each call. Done has what begin returned, and the error of the call.
type meter interface {
	begin(operation string) time.Duration
	done(operation string, begun time.Duration, err error)
}

// call is a call of an operation that has begun.
type call struct {
	operation string
	begun     time.Duration
}

func (s *observed) begin(operation string) call { return call{operation, s.meter.begin(operation)} }

// done ends a call. Methods defer it, with the results' variable, which stays on the stack since no interface has it.
func (s *observed) done(c call, err *error) { s.meter.done(c.operation, c.begun, *err) }

// Unwrap returns the store that is measured; see [store.As].
func (s *observed) Unwrap() store.Store { return s.Store }

func (s *observed) Ping(ctx context.Context, ns string, batch []store.PresenceEvent) (_ []lastseen.State, err error) {
	defer s.done(s.begin("ping"), &err)
	return s.Store.Ping(ctx, ns, batch)
}

func (s *observed) Leave(ctx context.Context, ns string, batch []store.PresenceEvent) (_ []lastseen.State, err error) {
	defer s.done(s.begin("leave"), &err)
	return s.Store.Leave(ctx, ns, batch)
}

func (s *observed) Count(ctx context.Context, ns string, ranges []lastseen.Range) (_ []int64, err error) {
	defer s.done(s.begin("count"), &err)
	return s.Store.Count(ctx, ns, ranges)
}

func (s *observed) Newest(ctx context.Context, ns string) (_ lastseen.Instant, err error) {
	defer s.done(s.begin("newest"), &err)
	return s.Store.Newest(ctx, ns)
}

func (s *observed) List(ctx context.Context, ns string, q store.ListQuery) (_ []store.Record, err error) {
	defer s.done(s.begin("list"), &err)
	return s.Store.List(ctx, ns, q)
}

func (s *observed) Forget(ctx context.Context, ns, user string) (err error) {
	defer s.done(s.begin("forget"), &err)
	return s.Store.Forget(ctx, ns, user)
}

func (s *observed) Trim(ctx context.Context, ns string, q store.TrimQuery) (_ store.TrimResult, err error) {
	defer s.done(s.begin("trim"), &err)
	return s.Store.Trim(ctx, ns, q)
}

func (s *observed) Namespaces(ctx context.Context, after string, limit int) (_ []store.NamespaceInfo, err error) {
	defer s.done(s.begin("namespaces"), &err)
	return s.Store.Namespaces(ctx, after, limit)
}

func (s *observed) Exist(ctx context.Context, namespaces []string) (_ []bool, err error) {
	defer s.done(s.begin("exist"), &err)
	return s.Store.Exist(ctx, namespaces)
}

func (s *observed) Register(ctx context.Context, namespaces []string) (err error) {
	defer s.done(s.begin("register"), &err)
	return s.Store.Register(ctx, namespaces)
}

func (s *observed) RemoveEmpty(ctx context.Context, ns string) (_ bool, err error) {
	defer s.done(s.begin("remove_empty"), &err)
	return s.Store.RemoveEmpty(ctx, ns)
}

func (s *observed) DeleteNamespace(ctx context.Context, ns string) (err error) {
	defer s.done(s.begin("delete_namespace"), &err)
	return s.Store.DeleteNamespace(ctx, ns)
}

func (s *observed) Lease(ctx context.Context, name string, ttl time.Duration) (_ bool, err error) {
	defer s.done(s.begin("lease"), &err)
	return s.Store.Lease(ctx, name, ttl)
}

func (s *observed) Note(ctx context.Context, name, key string) (_ store.Note, err error) {
	defer s.done(s.begin("note"), &err)
	return s.Store.Note(ctx, name, key)
}

func (s *observed) Notes(ctx context.Context, name string) (_ []string, err error) {
	defer s.done(s.begin("note"), &err)
	return s.Store.Notes(ctx, name)
}

func (s *observed) SetNote(ctx context.Context, name, key, old string, n store.Note) (_ bool, err error) {
	defer s.done(s.begin("note"), &err)
	return s.Store.SetNote(ctx, name, key, old, n)
}

func (s *observed) Secret(ctx context.Context) (_ [32]byte, err error) {
	defer s.done(s.begin("secret"), &err)
	return s.Store.Secret(ctx)
}

func (s *observed) Ready(ctx context.Context) (err error) {
	defer s.done(s.begin("ready"), &err)
	return s.Store.Ready(ctx)
}

func (s *observed) RecordChanges(ctx context.Context, ns string, t lastseen.Thresholds) (err error) {
	defer s.done(s.begin("record_changes"), &err)
	return s.Store.RecordChanges(ctx, ns, t)
}

func (s *observed) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	var failed error
	defer s.done(s.begin("read_changes"), &failed)
	s.Store.ReadChanges(ctx, reads)
	for _, r := range reads {
		failed = cmp.Or(failed, failure(r.Err))
	}
}

func (s *observed) SnapshotChanges(ctx context.Context, ns string, users []string) (_ store.Snapshot, err error) {
	defer s.done(s.begin("snapshot_changes"), &err)
	return s.Store.SnapshotChanges(ctx, ns, users)
}

func (s *observed) ScanUsers(
	ctx context.Context, ns string, after store.Position, limit int,
) (_ []string, _ store.Position, err error) {
	defer s.done(s.begin("scan_users"), &err)
	return s.Store.ScanUsers(ctx, ns, after, limit)
}

func (s *observed) AdvanceChanges(ctx context.Context, advances []*store.ChangesAdvance) {
	var failed error
	defer s.done(s.begin("sweep_changes"), &failed)
	s.Store.AdvanceChanges(ctx, advances)
	for _, w := range advances {
		failed = cmp.Or(failed, failure(w.Err))
	}
}

func (s *observed) RecordDevices(
	ctx context.Context, ns string, window time.Duration, batch []store.DeviceEvent,
) (_ []lastseen.State, err error) {
	defer s.done(s.begin("record_devices"), &err)
	return s.Store.RecordDevices(ctx, ns, window, batch)
}

func (s *observed) ReadDevices(ctx context.Context, ns, user string) (_ store.UserDevices, err error) {
	defer s.done(s.begin("read_devices"), &err)
	return s.Store.ReadDevices(ctx, ns, user)
}

func (s *observed) CloseConnections(ctx context.Context, ns, user string) (err error) {
	defer s.done(s.begin("close_connections"), &err)
	return s.Store.CloseConnections(ctx, ns, user)
}

func (s *observed) Disconnects(
	ctx context.Context, after store.DisconnectPosition,
) (_ []store.Disconnect, _ store.DisconnectPosition, err error) {
	defer s.done(s.begin("closings"), &err)
	return s.Store.Disconnects(ctx, after)
}

func (s *observed) SetAvailability(
	ctx context.Context, ns, user string, availability lastseen.AvailabilityState, at lastseen.Instant,
) (_ lastseen.State, err error) {
	defer s.done(s.begin("set_availability"), &err)
	return s.Store.SetAvailability(ctx, ns, user, availability, at)
}

func (s *observed) ReadAvailability(
	ctx context.Context, ns, user string, at lastseen.Instant,
) (_ lastseen.AvailabilityState, err error) {
	defer s.done(s.begin("read_availability"), &err)
	return s.Store.ReadAvailability(ctx, ns, user, at)
}

// Describe is measured as a lookup, as a batch of them is.
func (s *observed) Describe(
	ctx context.Context, ns string, users []string,
) (_ []lastseen.State, _ map[string]store.Details, err error) {
	defer s.done(s.begin("lookup"), &err)
	return s.Store.Describe(ctx, ns, users)
}

func (s *observed) ReadDetails(
	ctx context.Context, ns string, records []store.Record,
) (_ map[string]store.Details, err error) {
	defer s.done(s.begin("read_details"), &err)
	return s.Store.ReadDetails(ctx, ns, records)
}

func (s *observed) SetContacts(ctx context.Context, ns, owner string, contacts []string) (err error) {
	defer s.done(s.begin("set_contacts"), &err)
	return s.Store.SetContacts(ctx, ns, owner, contacts)
}

func (s *observed) ChangeContacts(ctx context.Context, ns, owner string, add, remove []string) (err error) {
	defer s.done(s.begin("change_contacts"), &err)
	return s.Store.ChangeContacts(ctx, ns, owner, add, remove)
}

func (s *observed) ListContacts(ctx context.Context, ns, owner, after string, limit int) (_ []string, err error) {
	defer s.done(s.begin("list_contacts"), &err)
	return s.Store.ListContacts(ctx, ns, owner, after, limit)
}

func (s *observed) AreContacts(ctx context.Context, ns string, pairs []store.ContactPair) (_ []bool, err error) {
	defer s.done(s.begin("are_contacts"), &err)
	return s.Store.AreContacts(ctx, ns, pairs)
}

func (s *observed) TrimContacts(
	ctx context.Context, ns string, q store.TrimQuery,
) (_ store.ContactsTrimResult, err error) {
	defer s.done(s.begin("trim_contacts"), &err)
	return s.Store.TrimContacts(ctx, ns, q)
}

func (s *observed) Signal(ctx context.Context, signal store.Signal) (err error) {
	defer s.done(s.begin("signal"), &err)
	return s.Store.Signal(ctx, signal)
}

func (s *observed) StartCall(ctx context.Context, ns string, c store.NewCall) (_ store.CallStep, err error) {
	defer s.done(s.begin("start_call"), &err)
	return s.Store.StartCall(ctx, ns, c)
}

func (s *observed) StepCall(ctx context.Context, ns string, a store.CallAct) (_ store.CallStep, err error) {
	defer s.done(s.begin("step_call"), &err)
	return s.Store.StepCall(ctx, ns, a)
}

func (s *observed) KeepCallsAlive(ctx context.Context, ns string, of []store.KeepAlive) (_ store.KeptAlive, err error) {
	defer s.done(s.begin("hear_calls"), &err)
	return s.Store.KeepCallsAlive(ctx, ns, of)
}

func (s *observed) ReadCalls(ctx context.Context, ns string, ids, users []string) (_ []lastseen.Call, err error) {
	defer s.done(s.begin("read_calls"), &err)
	return s.Store.ReadCalls(ctx, ns, ids, users)
}

func (s *observed) ExpireCalls(ctx context.Context, ns string) (_ store.ExpiredCalls, err error) {
	defer s.done(s.begin("expire_calls"), &err)
	return s.Store.ExpireCalls(ctx, ns)
}

func (s *observed) CallNamespaces(ctx context.Context, after string, limit int) (_ []string, err error) {
	defer s.done(s.begin("call_namespaces"), &err)
	return s.Store.CallNamespaces(ctx, after, limit)
}

type observedBatcher struct {
	observed
	batcher store.Batcher // the same store
}

func (s *observedBatcher) PingBatches(ctx context.Context, batches []*store.Batch[store.PresenceEvent]) {
	var failed error
	defer s.done(s.begin("ping"), &failed)
	s.batcher.PingBatches(ctx, batches)
	failed = firstError(batches)
}

func (s *observedBatcher) LookupBatches(ctx context.Context, batches []*store.Batch[string]) {
	var failed error
	defer s.done(s.begin("lookup"), &failed)
	s.batcher.LookupBatches(ctx, batches)
	failed = firstError(batches)
}

func (s *observedBatcher) NodeOf(namespace string) (of func(user string) string) {
	return s.batcher.NodeOf(namespace)
}

func firstError[T any](batches []*store.Batch[T]) error {
	for _, b := range batches {
		if b.Err != nil {
			return b.Err
		}
	}
	return nil
}
