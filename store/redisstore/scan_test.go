package redisstore_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// scanUntil scans the namespace chat from a position on, until so many users are found or to the end.
func scanUntil(t *testing.T, s store.Store, after store.Position, most int) (found []string, next store.Position) {
	t.Helper()
	for next = after; len(found) < most; {
		users, position, err := s.ScanUsers(context.Background(), kit.Namespace, next, 50)
		require.NoError(t, err)
		found = append(found, users...)
		if next = position; next == "" {
			break
		}
	}
	return found, next
}

// missing returns the users whom a scan did not find.
func missing(users []string, found ...[]string) []string {
	all := slices.Concat(found...)
	return slices.DeleteFunc(users, func(user string) bool { return slices.Contains(all, user) })
}

// TestScanInAnotherProcess: each process of Redis has another order of members. A scan that goes on in another one
// begins its shard again, and misses nobody.
func TestScanInAnotherProcess(t *testing.T) {
	t.Parallel()
	const all = 3000
	for name, change := range map[string]func(*testing.T, *redistest.Process) *redistest.Process{
		"restart": func(t *testing.T, p *redistest.Process) *redistest.Process {
			p.Stop(t)
			p.Start(t)
			return p
		},
		"failover": func(t *testing.T, p *redistest.Process) *redistest.Process {
			replica := redistest.StartReplica(t, p)
			stores.ReplicateAll(t, p.Client(t))
			p.Stop(t)
			require.NoError(t, replica.Client(t).Do(context.Background(), "REPLICAOF", "NO", "ONE").Err())
			return replica
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
			open := func(p *redistest.Process) store.Store {
				return stores.New(t, redisstore.Options{URL: p.URL(), Shards: 3})
			}
			s := open(primary)
			users := pingNumbered(t, s, kit.Namespace, all)
			before, position := scanUntil(t, s, "", all/2) // in the middle of the second shard
			after, end := scanUntil(t, open(change(t, primary)), position, 2*all)
			require.Empty(t, end)
			require.Less(t, len(before)+len(after), all*5/3, "only one shard is scanned again")
			require.Empty(t, missing(users, before, after))
		})
	}
}

// TestScanFromMoreShards: a position of a namespace with more shards is not valid.
func TestScanFromMoreShards(t *testing.T) {
	_, url, _ := stores.StartRedis(t)
	layouts := map[string]redisstore.Layout{"wide": {Shards: 16}}
	s := stores.New(t, redisstore.Options{URL: url, Shards: 3, Layouts: layouts})
	users := pingNumbered(t, s, kit.Namespace, 10)
	for position, more := store.Position(""), true; more; more = position != "" {
		var err error
		_, position, err = s.ScanUsers(context.Background(), "wide", position, 10)
		require.NoError(t, err)
		if shard, _, _ := strings.Cut(string(position), "/"); shard != "1" && shard != "2" {
			found, _ := scanUntil(t, s, position, 100)
			require.ElementsMatch(t, users, found, position)
		}
	}
}

// testScanWhileASlotMoves: a scan goes on where its shard is, and misses nobody.
func testScanWhileASlotMoves(t *testing.T, c *redistest.Cluster) {
	s := stores.New(t, redisstore.Options{URL: c.URL(), Prefix: "scan:", Shards: 2})
	users := pingNumbered(t, s, kit.Namespace, 1000)
	found, position := scanUntil(t, s, "", 200)
	const key = "scan:chat:0"
	c.MoveSlot(t, c.Slot(t, key), c.Next(t, key), func() {
		var more []string
		more, position = scanUntil(t, s, position, 200)
		found = append(found, more...)
	})
	more, _ := scanUntil(t, s, position, 5000)
	require.Empty(t, missing(users, found, more))
	require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
}
