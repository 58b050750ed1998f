package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// hookedStore is a store that a test has fail, wait or report calls by their names: real stores do nothing on demand.
type hookedStore struct {
	store.Store
	before func(ctx context.Context, call string) error // with an error, the call is not made
	after  func(call string) error
}

// failing returns a store whose calls fail, but for those of its clock.
func failing(s store.Store, err error) *hookedStore {
	return &hookedStore{Store: s, before: func(context.Context, string) error { return err }}
}

// failingCalls returns a store of which some calls fail.
func failingCalls(s store.Store, err error, calls ...string) *hookedStore {
	return &hookedStore{Store: s, before: func(_ context.Context, call string) error {
		if slices.Contains(calls, call) {
			return err
		}
		return nil
	}}
}

// panicking returns a store that panics when it is to record pings.
func panicking(s store.Store) *hookedStore {
	return &hookedStore{Store: s, before: func(_ context.Context, call string) error {
		if call == "Ping" {
			panic("the cause")
		}
		return nil
	}}
}

func throughHooks[T any](ctx context.Context, h *hookedStore, call string, do func() (T, error)) (result T, err error) {
	if h.before != nil {
		if err := h.before(ctx, call); err != nil {
			return result, err
		}
	}
	result, err = do()
	if h.after != nil {
		err = cmp.Or(err, h.after(call))
	}
	return result, err
}

func (h *hookedStore) do(ctx context.Context, call string, do func() error) error {
	_, err := throughHooks(ctx, h, call, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (h *hookedStore) Ping(ctx context.Context, n string, batch []store.Sighting) ([]lastseen.State, error) {
	return throughHooks(ctx, h, "Ping", func() ([]lastseen.State, error) { return h.Store.Ping(ctx, n, batch) })
}

func (h *hookedStore) Leave(ctx context.Context, n string, batch []store.Sighting) ([]lastseen.State, error) {
	return throughHooks(ctx, h, "Leave", func() ([]lastseen.State, error) { return h.Store.Leave(ctx, n, batch) })
}

func (h *hookedStore) Lookup(ctx context.Context, n string, users []string) ([]lastseen.State, error) {
	return throughHooks(ctx, h, "Lookup", func() ([]lastseen.State, error) { return h.Store.Lookup(ctx, n, users) })
}

func (h *hookedStore) Describe(
	ctx context.Context, n string, users []string,
) (states []lastseen.State, details map[string]store.Details, err error) {
	states, err = throughHooks(ctx, h, "Describe", func() (s []lastseen.State, err error) {
		s, details, err = h.Store.Describe(ctx, n, users)
		return s, err
	})
	return states, details, err
}

func (h *hookedStore) SetAvailability(
	ctx context.Context, n, user string, said lastseen.Said, at lastseen.Instant,
) (lastseen.State, error) {
	return throughHooks(ctx, h, "SetAvailability", func() (lastseen.State, error) {
		return h.Store.SetAvailability(ctx, n, user, said, at)
	})
}

func (h *hookedStore) ReadAvailability(
	ctx context.Context, n, user string, at lastseen.Instant,
) (lastseen.Said, error) {
	return throughHooks(ctx, h, "ReadAvailability", func() (lastseen.Said, error) {
		return h.Store.ReadAvailability(ctx, n, user, at)
	})
}

func (h *hookedStore) List(ctx context.Context, n string, q store.ListQuery) ([]store.Record, error) {
	return throughHooks(ctx, h, "List", func() ([]store.Record, error) { return h.Store.List(ctx, n, q) })
}

func (h *hookedStore) Count(ctx context.Context, n string, ranges []lastseen.Range) ([]int64, error) {
	return throughHooks(ctx, h, "Count", func() ([]int64, error) { return h.Store.Count(ctx, n, ranges) })
}

func (h *hookedStore) RecordChanges(ctx context.Context, n string, by lastseen.Thresholds) error {
	return h.do(ctx, "RecordChanges", func() error { return h.Store.RecordChanges(ctx, n, by) })
}

func (h *hookedStore) Forget(ctx context.Context, n, user string) error {
	return h.do(ctx, "Forget", func() error { return h.Store.Forget(ctx, n, user) })
}

func (h *hookedStore) RecordDevices(
	ctx context.Context, n string, window time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	return throughHooks(ctx, h, "RecordDevices", func() ([]lastseen.State, error) {
		return h.Store.RecordDevices(ctx, n, window, batch)
	})
}

func (h *hookedStore) ReadDevices(ctx context.Context, n, user string) (store.UserDevices, error) {
	return throughHooks(ctx, h, "ReadDevices", func() (store.UserDevices, error) {
		return h.Store.ReadDevices(ctx, n,
			user)
	})
}

func (h *hookedStore) SetContacts(ctx context.Context, n, owner string, contacts []string) error {
	return h.do(ctx, "SetContacts", func() error { return h.Store.SetContacts(ctx, n, owner, contacts) })
}

func (h *hookedStore) ChangeContacts(ctx context.Context, n, owner string, add, remove []string) error {
	return h.do(ctx, "ChangeContacts", func() error { return h.Store.ChangeContacts(ctx, n, owner, add, remove) })
}

func (h *hookedStore) ListContacts(ctx context.Context, n, owner, after string, limit int) ([]string, error) {
	return throughHooks(ctx, h, "ListContacts", func() ([]string, error) {
		return h.Store.ListContacts(ctx, n, owner, after, limit)
	})
}

func (h *hookedStore) StartCall(ctx context.Context, n string, call store.NewCall) (store.CallStep, error) {
	return throughHooks(ctx, h, "StartCall", func() (store.CallStep, error) { return h.Store.StartCall(ctx, n, call) })
}

func (h *hookedStore) StepCall(ctx context.Context, n string, act store.CallAct) (store.CallStep, error) {
	return throughHooks(ctx, h, "StepCall", func() (store.CallStep, error) { return h.Store.StepCall(ctx, n, act) })
}

func (h *hookedStore) ReadCalls(ctx context.Context, n string, ids, users []string) ([]lastseen.Call, error) {
	return throughHooks(ctx, h, "ReadCalls", func() ([]lastseen.Call, error) {
		return h.Store.ReadCalls(ctx, n, ids, users)
	})
}

func (h *hookedStore) CloseConnections(ctx context.Context, n, user string) error {
	return h.do(ctx, "CloseConnections", func() error { return h.Store.CloseConnections(ctx, n, user) })
}

func (h *hookedStore) Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error) {
	return throughHooks(ctx, h, "Namespaces", func() ([]store.NamespaceInfo, error) {
		return h.Store.Namespaces(ctx, after, limit)
	})
}

func (h *hookedStore) DeleteNamespace(ctx context.Context, n string) error {
	return h.do(ctx, "DeleteNamespace", func() error { return h.Store.DeleteNamespace(ctx, n) })
}

func (h *hookedStore) Ready(ctx context.Context) error {
	return h.do(ctx, "Ready", func() error { return h.Store.Ready(ctx) })
}

func (h *hookedStore) Signal(ctx context.Context, signal store.Signal) error {
	return h.do(ctx, strings.TrimSpace("Signal "+signal.Kind+" "+signal.User), func() error {
		return h.Store.Signal(ctx,
			signal)
	})
}

// sayingStore is a store in which users have the details that a test sets, whatever its clock is.
type sayingStore struct {
	store.Store
	details map[string]store.Details
}

func (s *sayingStore) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	states, err := s.Lookup(ctx, namespace, users)
	return states, s.details, err
}

func (s *sayingStore) ReadDetails(context.Context, string, []store.Record) (map[string]store.Details, error) {
	return s.details, nil
}

// failingLater returns a store that records one batch of pings only.
func failingLater(s store.Store, err error) *hookedStore {
	var taken atomic.Bool
	return &hookedStore{Store: s, before: func(_ context.Context, call string) error {
		if call == "Ping" && taken.Swap(true) {
			return err
		}
		return nil
	}}
}
