package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestLeastRights: what docs/operations.md says a Redis user needs is enough for everything.
func TestLeastRights(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	const rights = "~presence:* +@sortedset +@scripting +@hash +@string +@connection +unlink +exists +info +time +cluster"
	rule := append([]any{"ACL", "SETUSER", "app", "on", ">secret"}, words(rights)...)
	require.NoError(t, client.Do(ctx, rule...).Err())
	s := newStore(t, redisstore.Options{URL: strings.Replace(url, "redis://", "redis://app:secret@", 1)})
	require.NoError(t, s.Ready(ctx))
	require.NoError(t, s.Register(ctx, []string{"chat"}))
	granted, err := s.Lease(ctx, "sweep", time.Minute)
	require.NoError(t, err)
	require.True(t, granted)
	_, err = s.Now(ctx)
	require.NoError(t, err)
	for name, call := range calls(s, "chat") {
		require.NoError(t, call(), name)
	}
	_, err = s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
}

func words(text string) (all []any) {
	for _, word := range strings.Fields(text) {
		all = append(all, word)
	}
	return all
}
