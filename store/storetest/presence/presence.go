// Package presence has the conformance tests of users' states, lists of them, and namespaces.
package presence

import (
	"context"
	"testing"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Run tests what stores promise of users' states, lists of them, and namespaces. Each subtest opens a store of
// its own. The model draws pings and leaves in any order and of unknown users, forgotten users and deleted namespaces,
// and compares lookups, lists and counts after each, so there are no other cases of them.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Ahead", testAhead},
		{"Nothing", testNothing},
		{"Lookup/OtherNamespace", testNamespacesAreApart},
		{"List/OrderWithinOneMillisecond", testOrderWithinOneMillisecond},
		{"List/Bounds", testListBounds},
		{"List/WalkOneMillisecond", testWalkOneMillisecond},
		{"List/WalkWhileOthersMove", testWalkWhileOthersMove},
		{"List/NewestListsNobodyTwice", testNewestListsNobodyTwice},
		{"Trim", testTrim},
		{"Trim/AtMost", testTrimAtMost},
		{"Trim/ClockMoved", testTrimClockMoved},
		{"Trim/Held", testTrimHeld},
		{"RemoveEmpty/Writers", testRemoveEmptyWriters},
		{"Scan/InvalidPositions", testScanInvalidPositions},
		{"Scan/Limits", testScanLimits},
		{"Namespaces", testNamespaces},
		{"Namespaces/Pages", testNamespacePages},
		{"Namespaces/Register", testRegister},
		{"UserIDs", testUserIDs},
		{"Times", testTimes},
		{"LargeBatch", testLargeBatch},
		{"ConcurrentWriters", testConcurrentWriters},
	})
	t.Run("Model", func(t *testing.T) { testModel(t, open) })
	t.Run("Scan/Model", func(t *testing.T) { testScanModel(t, open) })
}

// Methods returns the methods of a store that concern presence.
func Methods(s store.Store, ns string) map[string]kit.Method {
	event, everyone := []store.PresenceEvent{{User: "alice", At: kit.Base}}, kit.Everyone()
	page := store.ListQuery{Ranges: everyone, Limit: 5}
	return map[string]kit.Method{
		"Ping":  func(ctx context.Context) error { return kit.ErrorOf(s.Ping(ctx, ns, event)) },
		"Leave": func(ctx context.Context) error { return kit.ErrorOf(s.Leave(ctx, ns, event)) },
		"Lookup": func(ctx context.Context) error {
			_, _, err := s.Describe(ctx, ns, []string{"alice"})
			return err
		},
		"Count":  func(ctx context.Context) error { return kit.ErrorOf(s.Count(ctx, ns, everyone)) },
		"Newest": func(ctx context.Context) error { return kit.ErrorOf(s.Newest(ctx, ns)) },
		"List":   func(ctx context.Context) error { return kit.ErrorOf(s.List(ctx, ns, page)) },
		"ScanUsers": func(ctx context.Context) error {
			_, _, err := s.ScanUsers(ctx, ns, "", 5)
			return err
		},
		"Forget": func(ctx context.Context) error { return s.Forget(ctx, ns, "alice") },
		"Trim": func(ctx context.Context) error {
			q, err := kit.AgeQuery(ctx, s)
			if err == nil {
				_, err = s.Trim(ctx, ns, q)
			}
			return err
		},
		"DeleteNamespace": func(ctx context.Context) error { return s.DeleteNamespace(ctx, ns) },
	}
}
