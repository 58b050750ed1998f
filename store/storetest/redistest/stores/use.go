package stores

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Ping pings users at the base.
func Ping(s store.Store, namespace string, users ...string) error {
	_, err := s.Ping(context.Background(), namespace, kit.Events(kit.Base, users...))
	return err
}

// Trim deletes everyone in the namespace chat last seen longer ago than an age.
func Trim(s store.Store, age time.Duration) (store.TrimResult, error) {
	now, err := s.Now(context.Background())
	if err != nil {
		return store.TrimResult{}, err
	}
	return s.Trim(context.Background(), kit.Namespace, store.TrimQuery{Age: age, Now: now, All: true})
}

// Calls is every method that asks about or changes the namespace chat, except those of devices, of contacts and of
// calls.
func Calls(s store.Store) map[string]func() error {
	return Bound(storetest.MethodsOf(s, kit.Namespace).Presence)
}

// AllCalls is Calls with the methods of devices, of contacts and of calls.
func AllCalls(s store.Store, namespace string) map[string]func() error {
	m := storetest.MethodsOf(s, namespace)
	return Bound(storetest.All(m.Presence, m.Devices, m.Contacts, m.Calls))
}

// Bound returns methods without their context.
func Bound(methods map[string]kit.Method) map[string]func() error {
	all := make(map[string]func() error)
	for name, call := range methods {
		all[name] = func() error { return call(context.Background()) }
	}
	return all
}

// RequireAll calls every method, except those of feeds, of devices, of availability and of calls, and requires that
// none fails.
func RequireAll(t testing.TB, s *redisstore.Store) {
	t.Helper()
	ctx, m := context.Background(), storetest.MethodsOf(s, kit.Namespace)
	for name, call := range storetest.All(m.Presence, m.Contacts, storetest.OtherMethods(s)) {
		require.NoError(t, call(ctx), name)
	}
	require.NoError(t, kit.ErrorOf(s.Now(ctx)))
	require.NoError(t, s.Signal(ctx, store.Signal{Kind: "k", Namespace: kit.Namespace, User: "alice"}))
}

// RequireUnavailable requires that all calls fail because of an outage. They are made at the same time, to wait for one
// timeout.
func RequireUnavailable(t testing.TB, all map[string]func() error) {
	t.Helper()
	var asking sync.WaitGroup
	defer asking.Wait()
	for name, call := range all {
		asking.Go(func() {
			if err := call(); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: not an outage: %v", name, err)
			}
		})
	}
}

// UntilSuccess calls until there is no error. Until then every error is an outage.
func UntilSuccess(t testing.TB, call func() error) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := call()
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("not an outage: %v", err)
		}
		return err == nil
	}, FailoverTimeout, time.Millisecond)
}

// Numbered returns names in bytewise order.
func Numbered(name string, n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("%s%05d", name, i)
	}
	return users
}

// rights is what docs/redis.md says a Redis user needs.
const rights = "~presence:* +@sortedset +@scripting +@hash +@string +@connection " +
	"+unlink +exists +pttl +pexpire +info +time +cluster|slots +asking +@stream +publish +subscribe &presence::signals*"

// Restrict makes the user app, who has only the documented rights.
func Restrict(t testing.TB, client *redis.Client) {
	t.Helper()
	rule := []any{"ACL", "SETUSER", "app", "on", ">secret"}
	for _, right := range strings.Fields(rights) {
		rule = append(rule, right)
	}
	require.NoError(t, client.Do(context.Background(), rule...).Err())
}

// ReplicateAll waits until the replica of a server has everything that was written before.
func ReplicateAll(t testing.TB, client *redis.Client) {
	t.Helper()
	conn := client.Conn() // WAIT is about what its own connection wrote
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.Set(context.Background(), "replicated", 1, 0).Err())
	require.Equal(t, int64(1), conn.Wait(context.Background(), 1, LongTimeout).Val())
}

// AsApp is the URL for the user app.
func AsApp(url string) string { return strings.Replace(url, "://", "://app:secret@", 1) }

// Eventually waits until something is so. A text and its arguments may follow.
func Eventually(t require.TestingT, so func() bool, text ...any) {
	require.Eventually(t, so, LongTimeout, time.Millisecond, text...)
}
