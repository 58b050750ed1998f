package redisstore_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestLocale: Lua compares strings as the server's locale does, and German puts b before C. Places
// whose member is gone are still found bytewise.
func TestLocale(t *testing.T) {
	t.Run("C", func(t *testing.T) {
		t.Setenv("LC_ALL", "C")
		testPlacesThatAreGone(t)
	})
	t.Run("de_DE", func(t *testing.T) {
		dir := t.TempDir()
		out, err := testenv.Command("localedef", "-i", "de_DE", "-f", "UTF-8",
			filepath.Join(dir, "de_DE.UTF-8")).CombinedOutput()
		if err != nil {
			t.Skipf("no German locale can be made here: %v %s", err, out)
		}
		t.Setenv("LOCPATH", dir)
		t.Setenv("LC_ALL", "de_DE.UTF-8")
		testPlacesThatAreGone(t)
	})
}

func testPlacesThatAreGone(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	s := newStore(t, redisstore.Options{URL: server.URL()})
	ascending := []string{
		"A", "B", "C", "Z", "a", "aa", "b", "z", "~", "ß", "ä", "é", "z\u0308",
		"Ω", "€", "😀",
	}
	slices.Sort(ascending)
	require.NoError(t, ping(s, "chat", ascending...))
	for i, gone := range ascending {
		require.NoError(t, s.Forget(ctx, "chat", gone))
		for order, want := range map[store.Order][]string{
			store.Oldest: ascending[i+1:],
			store.Newest: reversed(ascending[:i]),
		} {
			after := store.Record{User: gone}
			after.At = base
			records, err := s.List(ctx, "chat",
				store.ListQuery{Ranges: everyone(), Order: order, After: &after, Limit: 100})
			require.NoError(t, err)
			got := []string{}
			for _, r := range records {
				got = append(got, r.User)
			}
			require.Equal(t, want, got, "after %q, order %v", gone, order)
		}
		require.NoError(t, ping(s, "chat", gone))
	}
}

func reversed(names []string) []string {
	names = slices.Clone(names)
	slices.Reverse(names)
	return names
}
