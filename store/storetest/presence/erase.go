package presence

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func testNamespaces(t *testing.T, s store.Store) {
	ctx := context.Background()
	require.Empty(t, kit.Namespaces(t, s, 10))
	for i, name := range []string{"b", "a", "B", "chat", "_x", "0", "a-b", "a.b"} {
		kit.Write(s.Ping).Send(t, name, []store.PresenceEvent{
			{User: "u", At: kit.Base + lastseen.Instant(i)},
			{User: "v", At: kit.Base},
		})
	}
	kit.Write(s.Leave).In(t, "a", kit.Base+50, "v")
	require.NoError(t, s.Forget(ctx, "b", "u"))
	require.NoError(t, s.Forget(ctx, "b", "v"))
	require.Equal(t, []store.NamespaceInfo{
		{Name: "0", Newest: kit.Base + 5},
		{Name: "B", Newest: kit.Base + 2},
		{Name: "_x", Newest: kit.Base + 4},
		{Name: "a", Newest: kit.Base + 50},
		{Name: "a-b", Newest: kit.Base + 6},
		{Name: "a.b", Newest: kit.Base + 7},
		{Name: "b"},
		{Name: "chat", Newest: kit.Base + 3},
	}, kit.Namespaces(t, s, 10))
}

func testNamespacePages(t *testing.T, s store.Store) {
	ctx := context.Background()
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("room-%02d", i)
		want = append(want, name)
		kit.Write(s.Ping).In(t, name, kit.Base, "u")
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
	require.Equal(t, "room-26", page[0].Name, "the position need not exist")
}

func testRegister(t *testing.T, s store.Store) {
	ctx := context.Background()
	kit.Ping(t, s, "alice", kit.Base)
	for range 2 {
		require.NoError(t, s.Register(ctx, []string{"b", kit.Namespace, "a"}))
	}
	require.NoError(t, s.Register(ctx, nil))
	require.Equal(t, []store.NamespaceInfo{{Name: "a"}, {Name: "b"}, {Name: kit.Namespace, Newest: kit.Base}},
		kit.Namespaces(t, s, 10))

	require.NoError(t, s.DeleteNamespace(ctx, "a"))
	exist, err := s.Exist(ctx, []string{"a", kit.Namespace, "b", "none"})
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, true, false}, exist)
	kit.Write(s.Ping).In(t, "b", kit.Base+1, "bob")
	require.Equal(t, []store.NamespaceInfo{{Name: "b", Newest: kit.Base + 1}, {Name: kit.Namespace, Newest: kit.Base}},
		kit.Namespaces(t, s, 10))
	require.NoError(t, s.Register(ctx, []string{"a"}))
	require.Equal(t, []store.NamespaceInfo{{Name: "a"}}, kit.Namespaces(t, s, 1))
	require.True(t, kit.RemoveEmpty(t, s, "a"), "the caller decides which ones stay")
	require.Equal(t, []string{"b", kit.Namespace}, kit.Existing(t, s))
}

func testRemoveEmptyWriters(t *testing.T, s store.Store) {
	ctx := context.Background()
	kit.RemoveWhile(t, s, func(w, i int) error {
		write, want := s.Ping, kit.Here(kit.Base)
		if (w+i)%2 == 0 {
			write, want = s.Leave, kit.Left(kit.Base)
		}
		got, err := write(ctx, kit.Namespace, kit.Events(kit.Base, fmt.Sprint(w)))
		found, _, lost := s.Describe(ctx, kit.Namespace, []string{fmt.Sprint(w)})
		if err == nil && lost == nil && (got[0] != want || found[0] != want) {
			return fmt.Errorf("%v, then %v", got, found)
		}
		return errors.Join(err, lost)
	}, func(w, _ int) error { return s.Forget(ctx, kit.Namespace, fmt.Sprint(w)) })
	require.Len(t, kit.Remaining(t, s), 4)
}
