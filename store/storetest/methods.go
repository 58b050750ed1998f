package storetest

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/changes"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/presence"
)

// Methods is every method of a store that concerns a namespace, by what they are about.
type Methods struct{ Presence, Feeds, Devices, Contacts, Availability, Calls map[string]kit.Method }

// MethodsOf returns the methods for a namespace.
func MethodsOf(s store.Store, namespace string) Methods {
	return Methods{
		Presence: presence.Methods(s, namespace), Feeds: changes.Methods(s, namespace),
		Devices: devices.Methods(s, namespace), Contacts: contacts.Methods(s, namespace),
		Availability: availability.Methods(s, namespace), Calls: calls.Methods(s, namespace),
	}
}

// All returns methods of several kinds.
func All(kinds ...map[string]kit.Method) map[string]kit.Method {
	all := make(map[string]kit.Method)
	for _, kind := range kinds {
		maps.Copy(all, kind)
	}
	return all
}

// OtherMethods is every method that takes a context and concerns no namespace, or the connections of one.
func OtherMethods(s store.Store) map[string]kit.Method {
	return map[string]kit.Method{
		"RemoveEmpty":    func(ctx context.Context) error { return kit.ErrorOf(s.RemoveEmpty(ctx, "unused")) },
		"Namespaces":     func(ctx context.Context) error { return kit.ErrorOf(s.Namespaces(ctx, "", 5)) },
		"CallNamespaces": func(ctx context.Context) error { return kit.ErrorOf(s.CallNamespaces(ctx, "", 5)) },
		"Exist": func(ctx context.Context) error {
			return kit.ErrorOf(s.Exist(ctx,
				[]string{kit.Namespace}))
		},
		"Register": func(ctx context.Context) error { return s.Register(ctx, []string{"alice"}) },
		"Lease":    func(ctx context.Context) error { return kit.ErrorOf(s.Lease(ctx, "work", time.Hour)) },
		"Note":     func(ctx context.Context) error { return kit.ErrorOf(s.Note(ctx, "work", "a")) },
		"Notes":    func(ctx context.Context) error { return kit.ErrorOf(s.Notes(ctx, "work")) },
		"SetNote": func(ctx context.Context) error {
			return kit.ErrorOf(s.SetNote(ctx, "work", "a", "", store.Note{Version: "1"}))
		},
		"Secret":           func(ctx context.Context) error { return kit.ErrorOf(s.Secret(ctx)) },
		"Ready":            s.Ready,
		"CloseConnections": func(ctx context.Context) error { return s.CloseConnections(ctx, kit.Namespace, "alice") },
		"Disconnects": func(ctx context.Context) error {
			_, _, err := s.Disconnects(ctx, "")
			return err
		},
	}
}

// every is every method that takes a context, but for that which begins a feed.
func every(s store.Store) map[string]kit.Method {
	m := MethodsOf(s, kit.Namespace)
	delete(m.Feeds, "RecordChanges")
	return All(m.Presence, m.Feeds, m.Devices, m.Contacts, m.Availability, m.Calls, OtherMethods(s))
}

// testCancelled: what is cancelled before it begins does nothing, whether or not there is something.
func testCancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.RecordChanges(ctx, kit.Namespace, changes.Normal), context.Canceled)
	changes.RequireNotRecorded(t, s)
	f := changes.Begin(t, s)
	for range 2 {
		for name, call := range every(s) {
			require.ErrorIs(t, call(ctx), context.Canceled, name)
		}
		require.Zero(t, kit.Lookup(t, s, "alice")[0], "nothing happened")
		require.Empty(t, contacts.Of(t, s, "alice"), "nothing happened")
		availability.Require(t, s, "alice", availability.Nothing)
		devices.RequireNone(t, s, "alice")
		calls.NewCalling(t, s).Unknown("a")
		require.Empty(t, f.Read(), "nothing happened")
		contacts.Set(t, s, "bob", "carol")
		availability.SetAt(t, s, "carol", availability.Invisible, kit.Base)
		devices.Record(t, s, devices.On("bob", "a", kit.Base))
		availability.Set(t, s, "bob", availability.Busy)
		f.Read()
	}
	devices.Require(t, s, "bob", "a")
	require.Equal(t, kit.Here(kit.Base), kit.Lookup(t, s, "bob")[0])
}

// testClose: a closed store says so, whatever it is asked.
func testClose(t *testing.T, s store.Store) {
	changes.Begin(t, s)
	devices.Record(t, s, devices.On("bob", "a", kit.Base))
	contacts.Set(t, s, "bob", "carol")
	availability.SetAt(t, s, "carol", availability.Invisible, kit.Base)
	calls.NewCalling(t, s).Ring("alice", "bob")
	require.NoError(t, s.Close())
	for name, call := range every(s) {
		require.ErrorIs(t, call(context.Background()), store.ErrClosed, name)
	}
	require.ErrorIs(t, s.RecordChanges(context.Background(), kit.Namespace, changes.Normal), store.ErrClosed)
	require.ErrorIs(t, kit.ErrorOf(s.Now(context.Background())), store.ErrClosed)
	require.NoError(t, s.Close(), "closing again does nothing")
}

// testNone: a namespace that cannot have a feed, devices, contacts, availability or calls says so, and works.
func testNone(t *testing.T, s store.Store) {
	m, ctx := MethodsOf(s, kit.Namespace), context.Background()
	for range 2 {
		for refusal, methods := range map[error]map[string]kit.Method{
			store.ErrNoFeed: m.Feeds, store.ErrNoDevices: m.Devices, store.ErrNoContacts: m.Contacts,
			store.ErrNoAvailability: m.Availability, store.ErrNoCalls: m.Calls,
		} {
			for name, call := range methods {
				err := call(ctx)
				switch {
				case name == "ReadAvailability", name == "Describe", name == "ReadDetails":
					require.NoError(t, err, name)
				case name == "RecordChanges" || !errors.Is(err, store.ErrNotRecorded): // which is right for feeds, too
					require.ErrorIs(t, err, refusal, name)
				}
			}
		}
		_, err := s.RecordDevices(ctx, kit.Namespace, devices.WindowTime, nil)
		require.ErrorIs(t, err, store.ErrNoDevices, "also without a device")
		require.Equal(t, []lastseen.State{{}}, kit.Lookup(t, s, "alice"), "nothing is recorded")
		availability.Require(t, s, "alice", availability.Nothing)
		require.Equal(t, kit.Here(kit.Base), kit.Ping(t, s, "bob", kit.Base))
		require.Equal(t, kit.Left(kit.Base), kit.Leave(t, s, "carol", kit.Base))
		require.Empty(t, availability.Details(t, s, "alice", "bob"))
	}
	require.NoError(t, kit.ErrorOf(s.CallNamespaces(ctx, "", 5)))
	kit.Forget(t, s, "bob", "carol")
	require.Empty(t, kit.Remaining(t, s))
	require.NoError(t, s.DeleteNamespace(ctx, kit.Namespace))
	require.Empty(t, kit.Namespaces(t, s, 10))
}
