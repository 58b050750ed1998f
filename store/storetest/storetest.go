// Package storetest is the conformance suite of package store: every promise of the contract has a test here. Both
// stores run all of them on one topology, and a part on others.
package storetest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/changes"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/presence"
	"github.com/lastseen/lastseen/store/storetest/servers"
)

// Run tests that stores keep the contract. Each subtest opens its own store. Some of them run at the same time.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	for name, suite := range map[string]func(*testing.T, kit.Open){
		"Core": RunCore, "Methods": runMethods, "Devices": devices.Run, "Contacts": contacts.Run,
		"Availability": availability.Run, "Calls": calls.Run,
		"Changes": changes.Run, "ChangesOfAvailability": changes.RunAvailability, "ChangesOfCalls": changes.RunInCalls,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite(t, open)
		})
	}
}

func runMethods(t *testing.T, open kit.Open) {
	kit.RunEach(t, open, kit.Cases{{"CancelledContext", testCancelled}, {"Close", testClose}})
}

// RunWithoutFeed is Run for stores whose namespaces cannot have changes feeds, devices, contacts, availability or
// calls.
func RunWithoutFeed(t *testing.T, open kit.Open) {
	t.Helper()
	RunCore(t, open)
	RunNone(t, open)
}

// RunNone tests that a namespace that cannot have a changes feed, devices, contacts, availability and calls says so,
// and that everything else works.
func RunNone(t *testing.T, open kit.Open) {
	t.Helper()
	t.Run("None", func(t *testing.T) { testNone(t, open(t)) })
}

// RunCore is Run without feeds, devices, contacts, availability and calls. It is for stores whose differences from one
// that Run tests do not concern these.
func RunCore(t *testing.T, open kit.Open) {
	t.Helper()
	presence.Run(t, open)
	servers.Run(t, open)
}

// DataFile returns the path of a data file to create, which is gone after the test. The file is in memory where there
// is such a file system: most tests are not about what the disk does. Those that are use t.TempDir.
func DataFile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "lastseen-test-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "lastseen.db")
}

// OneByOne is a store that takes batches, with a call for each.
type OneByOne struct{ store.Store }

// PingBatches implements [store.Batcher].
func (s OneByOne) PingBatches(ctx context.Context, batches []*store.Batch[store.PresenceEvent]) {
	for _, b := range batches {
		b.States, b.Err = s.Ping(ctx, b.Namespace, b.Items)
	}
}

// LookupBatches implements [store.Batcher].
func (s OneByOne) LookupBatches(ctx context.Context, batches []*store.Batch[string]) {
	for _, b := range batches {
		var details map[string]store.Details
		b.States, details, b.Err = s.Describe(ctx, b.Namespace, b.Items)
		for at, user := range b.Items {
			if d, some := details[user]; some {
				b.Details = append(b.Details, store.ItemDetails{At: at, Details: d})
			}
		}
	}
}

// NodeOf implements [store.Batcher]: all users are on one node.
func (OneByOne) NodeOf(string) (of func(user string) string) {
	return func(string) string { return "" }
}
