package kit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// HookedStore is a store that a test has fail, wait or report calls by their names: real stores do nothing on demand.
type HookedStore struct {
	store.Store
	Before func(ctx context.Context, call string) error // with an error, the call is not made
	After  func(call string) error
}

// HookedFileStore opens an embedded store, of which a function is called before each call. With an error of that, the
// call is not made.
func HookedFileStore(t *testing.T, before func(ctx context.Context, call string) error) *HookedStore {
	t.Helper()
	return &HookedStore{Store: FileStore(t), Before: before}
}

// Failing returns a store whose calls fail, but for those of its clock.
func Failing(s store.Store, err error) *HookedStore {
	return &HookedStore{Store: s, Before: func(context.Context, string) error { return err }}
}

// FailingCalls returns a store of which some calls fail.
func FailingCalls(s store.Store, err error, calls ...string) *HookedStore {
	return &HookedStore{Store: s, Before: func(_ context.Context, call string) error {
		if slices.Contains(calls, call) {
			return err
		}
		return nil
	}}
}

// Panicking returns a store that panics when it is to record pings.
func Panicking(s store.Store) *HookedStore {
	return &HookedStore{Store: s, Before: func(_ context.Context, call string) error {
		if call == "Ping" {
			panic("the cause")
		}
		return nil
	}}
}

func throughHooks[T any](ctx context.Context, h *HookedStore, call string, do func() (T, error)) (result T, err error) {
	if h.Before != nil {
		if err := h.Before(ctx, call); err != nil {
			return result, err
		}
	}
	result, err = do()
	if h.After != nil {
		err = cmp.Or(err, h.After(call))
	}
	return result, err
}

func (h *HookedStore) do(ctx context.Context, call string, do func() error) error {
	_, err := throughHooks(ctx, h, call, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (h *HookedStore) Ping(ctx context.Context, n string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	return throughHooks(ctx, h, "Ping", func() ([]lastseen.State, error) { return h.Store.Ping(ctx, n, batch) })
}

func (h *HookedStore) Leave(ctx context.Context, n string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	return throughHooks(ctx, h, "Leave", func() ([]lastseen.State, error) { return h.Store.Leave(ctx, n, batch) })
}

func (h *HookedStore) Describe(
	ctx context.Context, n string, users []string,
) (states []lastseen.State, details map[string]store.Details, err error) {
	states, err = throughHooks(ctx, h, "Describe", func() (s []lastseen.State, err error) {
		s, details, err = h.Store.Describe(ctx, n, users)
		return s, err
	})
	return states, details, err
}

func (h *HookedStore) SetAvailability(
	ctx context.Context, n, user string, availability lastseen.AvailabilityState, at lastseen.Instant,
) (lastseen.State, error) {
	return throughHooks(ctx, h, "SetAvailability", func() (lastseen.State, error) {
		return h.Store.SetAvailability(ctx, n, user, availability, at)
	})
}

func (h *HookedStore) ReadAvailability(
	ctx context.Context, n, user string, at lastseen.Instant,
) (lastseen.AvailabilityState, error) {
	return throughHooks(ctx, h, "ReadAvailability", func() (lastseen.AvailabilityState, error) {
		return h.Store.ReadAvailability(ctx, n, user, at)
	})
}

func (h *HookedStore) List(ctx context.Context, n string, q store.ListQuery) ([]store.Record, error) {
	return throughHooks(ctx, h, "List", func() ([]store.Record, error) { return h.Store.List(ctx, n, q) })
}

func (h *HookedStore) Count(ctx context.Context, n string, ranges []lastseen.Range) ([]int64, error) {
	return throughHooks(ctx, h, "Count", func() ([]int64, error) { return h.Store.Count(ctx, n, ranges) })
}

func (h *HookedStore) RecordChanges(ctx context.Context, n string, by lastseen.Thresholds) error {
	return h.do(ctx, "RecordChanges", func() error { return h.Store.RecordChanges(ctx, n, by) })
}

func (h *HookedStore) Forget(ctx context.Context, n, user string) error {
	return h.do(ctx, "Forget", func() error { return h.Store.Forget(ctx, n, user) })
}

func (h *HookedStore) RecordDevices(
	ctx context.Context, n string, window time.Duration, batch []store.DeviceEvent,
) ([]lastseen.State, error) {
	return throughHooks(ctx, h, "RecordDevices", func() ([]lastseen.State, error) {
		return h.Store.RecordDevices(ctx, n, window, batch)
	})
}

func (h *HookedStore) ReadDevices(ctx context.Context, n, user string) (store.UserDevices, error) {
	return throughHooks(ctx, h, "ReadDevices", func() (store.UserDevices, error) {
		return h.Store.ReadDevices(ctx, n,
			user)
	})
}

func (h *HookedStore) SetContacts(ctx context.Context, n, owner string, contacts []string) error {
	return h.do(ctx, "SetContacts", func() error { return h.Store.SetContacts(ctx, n, owner, contacts) })
}

func (h *HookedStore) ChangeContacts(ctx context.Context, n, owner string, add, remove []string) error {
	return h.do(ctx, "ChangeContacts", func() error { return h.Store.ChangeContacts(ctx, n, owner, add, remove) })
}

func (h *HookedStore) ListContacts(ctx context.Context, n, owner, after string, limit int) ([]string, error) {
	return throughHooks(ctx, h, "ListContacts", func() ([]string, error) {
		return h.Store.ListContacts(ctx, n, owner, after, limit)
	})
}

func (h *HookedStore) StartCall(ctx context.Context, n string, call store.NewCall) (store.CallStep, error) {
	return throughHooks(ctx, h, "StartCall", func() (store.CallStep, error) { return h.Store.StartCall(ctx, n, call) })
}

func (h *HookedStore) StepCall(ctx context.Context, n string, act store.CallAct) (store.CallStep, error) {
	return throughHooks(ctx, h, "StepCall", func() (store.CallStep, error) { return h.Store.StepCall(ctx, n, act) })
}

func (h *HookedStore) ReadCalls(ctx context.Context, n string, ids, users []string) ([]lastseen.Call, error) {
	return throughHooks(ctx, h, "ReadCalls", func() ([]lastseen.Call, error) {
		return h.Store.ReadCalls(ctx, n, ids, users)
	})
}

func (h *HookedStore) CloseConnections(ctx context.Context, n, user string) error {
	return h.do(ctx, "CloseConnections", func() error { return h.Store.CloseConnections(ctx, n, user) })
}

func (h *HookedStore) Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error) {
	return throughHooks(ctx, h, "Namespaces", func() ([]store.NamespaceInfo, error) {
		return h.Store.Namespaces(ctx, after, limit)
	})
}

func (h *HookedStore) DeleteNamespace(ctx context.Context, n string) error {
	return h.do(ctx, "DeleteNamespace", func() error { return h.Store.DeleteNamespace(ctx, n) })
}

func (h *HookedStore) Ready(ctx context.Context) error {
	return h.do(ctx, "Ready", func() error { return h.Store.Ready(ctx) })
}

func (h *HookedStore) Signal(ctx context.Context, signal store.Signal) error {
	return h.do(ctx, strings.TrimSpace("Signal "+signal.Kind+" "+signal.User), func() error {
		return h.Store.Signal(ctx,
			signal)
	})
}

// Note implements [store.Store].
func (h *HookedStore) Note(ctx context.Context, name, key string) (store.Note, error) {
	return throughHooks(ctx, h, "Note", func() (store.Note, error) { return h.Store.Note(ctx, name, key) })
}

// FailingLater returns a store that records one batch of pings only.
func FailingLater(s store.Store, err error) *HookedStore {
	var taken atomic.Bool
	return &HookedStore{Store: s, Before: func(_ context.Context, call string) error {
		if call == "Ping" && taken.Swap(true) {
			return err
		}
		return nil
	}}
}

// BlockingStore returns a store of which some calls report that they were made, and wait until the test lets them.
func BlockingStore(t *testing.T, calls ...string) (s store.Store, asked, let chan struct{}) {
	asked, let = make(chan struct{}), make(chan struct{})
	return HookedFileStore(t, func(_ context.Context, call string) error {
		if slices.Contains(calls, call) {
			asked <- struct{}{}
			<-let
		}
		return nil
	}), asked, let
}

// WithoutDevices returns a store whose namespaces cannot have devices. Real ones are sets that other programs write.
func WithoutDevices(s store.Store) store.Store {
	return FailingCalls(s, store.ErrNoDevices, "RecordDevices", "ReadDevices")
}
