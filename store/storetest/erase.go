package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func testForget(t *testing.T, s store.Store) {
	ping(t, s, "alice", base)
	ping(t, s, "bob", base)
	leave(t, s, "bob", base+1)
	ping(t, s, "eve", base)
	forget(t, s, "alice", "bob", "nobody")
	require.Equal(t, []lastseen.State{{}, {}, here(base)}, lookup(t, s, "alice", "bob", "eve"))
	require.Equal(t, []string{"eve"}, users(list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10})))
	require.Equal(t, []int64{1, 0}, count(t, s, everyone()...))

	require.Equal(t, here(base-9), ping(t, s, "alice", base-9), "nothing from before counts")
	require.Equal(t, left(base-9), leave(t, s, "bob", base-9), "nothing from before counts")
}

func testNamespaces(t *testing.T, s store.Store) {
	ctx := context.Background()
	require.Empty(t, namespaces(t, s, 10))
	for i, name := range []string{"b", "a", "B", "chat", "_x", "0", "a-b", "a.b"} {
		write(s.Ping).send(t, name, []store.Sighting{
			{User: "u", At: base + lastseen.Instant(i)},
			{User: "v", At: base},
		})
	}
	write(s.Leave).in(t, "a", base+50, "v")
	require.NoError(t, s.Forget(ctx, "b", "u"))
	require.NoError(t, s.Forget(ctx, "b", "v"))
	require.Equal(t, []store.NamespaceInfo{
		{Name: "0", Newest: base + 5},
		{Name: "B", Newest: base + 2},
		{Name: "_x", Newest: base + 4},
		{Name: "a", Newest: base + 50},
		{Name: "a-b", Newest: base + 6},
		{Name: "a.b", Newest: base + 7},
		{Name: "b"},
		{Name: "chat", Newest: base + 3},
	}, namespaces(t, s, 10))
}

func testNamespacePages(t *testing.T, s store.Store) {
	ctx := context.Background()
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("room-%02d", i)
		want = append(want, name)
		write(s.Ping).in(t, name, base, "u")
	}
	for _, limit := range []int{1, 7, 50, 51} {
		var got []string
		for after := ""; ; {
			page, err := s.Namespaces(ctx, after, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), limit)
			for _, info := range page {
				got = append(got, info.Name)
			}
			if len(page) < limit {
				break
			}
			after = page[len(page)-1].Name
		}
		require.Equal(t, want, got, "pages of %d", limit)
	}
	page, err := s.Namespaces(ctx, "room-25x", 1)
	require.NoError(t, err)
	require.Equal(t, "room-26", page[0].Name, "the place need not exist")
}

func testDeleteNamespace(t *testing.T, s store.Store) {
	ctx := context.Background()
	crowd(t, s, 100)
	leave(t, s, "u000001", base+1)
	write(s.Ping).in(t, "other", base, "alice")

	require.NoError(t, s.DeleteNamespace(ctx, ns))
	require.NoError(t, s.DeleteNamespace(ctx, ns))
	require.NoError(t, s.DeleteNamespace(ctx, "never-used"))
	require.Equal(t, []lastseen.State{{}, {}}, lookup(t, s, "u000000", "u000001"))
	require.Empty(t, list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10}))
	require.Equal(t, []store.NamespaceInfo{{Name: "other", Newest: base}}, namespaces(t, s, 10))

	require.Equal(t, left(base-7), leave(t, s, "u000001", base-7), "nothing from before counts")
	require.Equal(t, here(base-5), ping(t, s, "u000003", base-5))
	require.Equal(t, []store.NamespaceInfo{{Name: ns, Newest: base - 5}, {Name: "other", Newest: base}},
		namespaces(t, s, 10), "it exists again")
}

func testRegister(t *testing.T, s store.Store) {
	ctx := context.Background()
	ping(t, s, "alice", base)
	for range 2 {
		require.NoError(t, s.Register(ctx, []string{"b", ns, "a"}))
	}
	require.NoError(t, s.Register(ctx, nil))
	require.Equal(t, []store.NamespaceInfo{{Name: "a"}, {Name: "b"}, {Name: ns, Newest: base}}, namespaces(t, s, 10))

	require.NoError(t, s.DeleteNamespace(ctx, "a"))
	write(s.Ping).in(t, "b", base+1, "bob")
	require.Equal(t, []store.NamespaceInfo{{Name: "b", Newest: base + 1}, {Name: ns, Newest: base}},
		namespaces(t, s, 10))
	require.NoError(t, s.Register(ctx, []string{"a"}))
	require.Equal(t, []store.NamespaceInfo{{Name: "a"}}, namespaces(t, s, 1))
}
