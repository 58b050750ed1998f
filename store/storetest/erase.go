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
	ctx := context.Background()
	ping(t, s, "alice", base)
	ping(t, s, "bob", base)
	leave(t, s, "bob", base+1)
	ping(t, s, "eve", base)
	for _, user := range []string{"alice", "bob", "nobody"} {
		require.NoError(t, s.Forget(ctx, ns, user))
	}
	require.Equal(t, []lastseen.State{{}, {}, here(base)}, lookup(t, s, "alice", "bob", "eve"))
	require.Equal(t, []string{"eve"}, users(list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10})))
	counts, err := s.Count(ctx, ns, everyone())
	require.NoError(t, err)
	require.Equal(t, []int64{1, 0}, counts)

	require.Equal(t, here(base-9), ping(t, s, "alice", base-9), "nothing from before counts")
	require.Equal(t, left(base-9), leave(t, s, "bob", base-9), "nothing from before counts")
}

func testNamespaces(t *testing.T, s store.Store) {
	ctx := context.Background()
	names, err := s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.Empty(t, names)
	for i, name := range []string{"b", "a", "B", "chat", "_x", "0", "a-b", "a.b"} {
		_, err := s.Ping(ctx, name, []store.Sighting{{User: "u", At: base + lastseen.Instant(i)}, {User: "v", At: base}})
		require.NoError(t, err)
	}
	_, err = s.Leave(ctx, "a", []store.Sighting{{User: "v", At: base + 50}})
	require.NoError(t, err)
	require.NoError(t, s.Forget(ctx, "b", "u"))
	require.NoError(t, s.Forget(ctx, "b", "v"))
	names, err = s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.NamespaceInfo{
		{Name: "0", Newest: base + 5},
		{Name: "B", Newest: base + 2},
		{Name: "_x", Newest: base + 4},
		{Name: "a", Newest: base + 50},
		{Name: "a-b", Newest: base + 6},
		{Name: "a.b", Newest: base + 7},
		{Name: "b"},
		{Name: "chat", Newest: base + 3},
	}, names)
}

func testNamespacePages(t *testing.T, s store.Store) {
	ctx := context.Background()
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("room-%02d", i)
		want = append(want, name)
		_, err := s.Ping(ctx, name, []store.Sighting{{User: "u", At: base}})
		require.NoError(t, err)
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
	_, err := s.Ping(ctx, "other", []store.Sighting{{User: "alice", At: base}})
	require.NoError(t, err)

	require.NoError(t, s.DeleteNamespace(ctx, ns))
	require.NoError(t, s.DeleteNamespace(ctx, ns))
	require.NoError(t, s.DeleteNamespace(ctx, "never-used"))
	require.Equal(t, []lastseen.State{{}, {}}, lookup(t, s, "u000000", "u000001"))
	require.Empty(t, list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10}))
	names, err := s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.NamespaceInfo{{Name: "other", Newest: base}}, names)

	require.Equal(t, left(base-7), leave(t, s, "u000001", base-7), "nothing from before counts")
	require.Equal(t, here(base-5), ping(t, s, "u000003", base-5))
	names, err = s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.NamespaceInfo{{Name: ns, Newest: base - 5}, {Name: "other", Newest: base}}, names, "it exists again")
}

func testRegister(t *testing.T, s store.Store) {
	ctx := context.Background()
	ping(t, s, "alice", base)
	for range 2 {
		require.NoError(t, s.Register(ctx, []string{"b", ns, "a"}))
	}
	require.NoError(t, s.Register(ctx, nil))
	all, err := s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.NamespaceInfo{{Name: "a"}, {Name: "b"}, {Name: ns, Newest: base}}, all)

	require.NoError(t, s.DeleteNamespace(ctx, "a"))
	_, err = s.Ping(ctx, "b", []store.Sighting{{User: "bob", At: base + 1}})
	require.NoError(t, err)
	all, err = s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.NamespaceInfo{{Name: "b", Newest: base + 1}, {Name: ns, Newest: base}}, all)
	require.NoError(t, s.Register(ctx, []string{"a"}))
	all, err = s.Namespaces(ctx, "", 1)
	require.NoError(t, err)
	require.Equal(t, []store.NamespaceInfo{{Name: "a"}}, all)
}
