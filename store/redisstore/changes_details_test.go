package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// sidesKey, detailsKey and endsKey are side keys of a shard's key.
func sidesKey(key string) string   { return stores.SideKey("keys", key) }
func detailsKey(key string) string { return stores.SideKey("details", key) }
func endsKey(key string) string    { return stores.SideKey("ends", key) }

// detailsOf returns the details of the users of a shard, in the form of docs/decisions/redis-keys.md.
func detailsOf(t testing.TB, client redis.Cmdable, key string) map[string]string {
	t.Helper()
	fields, err := client.HGetAll(context.Background(), detailsKey(key)).Result()
	require.NoError(t, err)
	return fields
}

// setAvailability has users set an availability.
func (f *feed) setAvailability(state lastseen.AvailabilityState, users ...string) {
	f.Helper()
	for _, user := range users {
		availability.SetAt(f, f.s, user, state, f.clock())
	}
}

// keep writes details that end at an instant.
func (f *feed) keep(key, user, text string, end lastseen.Instant) {
	f.Helper()
	ctx := context.Background()
	require.NoError(f, f.client.HSet(ctx, sidesKey(key), "keys", "-defs").Err())
	require.NoError(f, f.client.HSet(ctx, detailsKey(key), user, text).Err())
	require.NoError(f, f.client.ZAdd(ctx, endsKey(key), redis.Z{Member: user, Score: float64(end)}).Err())
}

// ended has users set an availability that ends at an instant, which may have passed. They set another availability
// now.
func (f *feed) ended(at lastseen.Instant, users ...string) {
	f.Helper()
	f.each(func(key string) error {
		texts, err := f.client.HGetAll(context.Background(), detailsKey(key)).Result()
		for user, text := range texts {
			values := strings.SplitN(text, " ", 4)
			if !slices.Contains(users, user) {
				continue
			}
			values[2] = fmt.Sprint(int64(at))
			f.keep(key, user, strings.Join(values, " "), at)
		}
		return err
	})
}

var busy = lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "8 17 x"}

// requireDetails requires that Redis keeps the details of these users alone.
func (f *feed) requireDetails(users ...string) {
	f.Helper()
	var kept []string
	f.each(func(key string) error {
		kept = slices.AppendSeq(kept, maps.Keys(detailsOf(f, f.client, key)))
		return nil
	})
	slices.Sort(kept)
	require.Equal(f, slices.Sorted(slices.Values(users)), kept)
}

// TestEndsAhead: what ends is not deleted before that by the clock of Redis and by that of the caller.
func TestEndsAhead(t *testing.T) {
	t.Parallel()
	f := newFeed(t, 1)
	f.setAvailability(busy, "alice", "bob")
	f.quickly(2*time.Second, func() {
		now := f.clock()
		f.moveWatermark(now)
		f.ended(now+3*second, "alice")
		require.Equal(t, 1, f.advance(now+4*second).Transitions, "the watermark passes the end")
		f.requireDetails("alice", "bob")
	})
	r := newReader(t, f.s, "alice", "bob")
	require.Empty(t, r.told["alice"].Availability)

	f.setAvailability(busy, "alice")
	now := f.clock() + 4*second
	f.moveWatermark(now - 20*second)
	f.ended(now-10*second, "alice", "bob")
	f.advance(now - 15*second)
	f.requireDetails("alice", "bob")
	f.advance(now - 10*second)
	f.requireDetails()
	require.Zero(t, f.client.Exists(context.Background(), endsKey("presence:chat")).Val())
}

// TestEntriesWithoutDetails: they are as they were before there were any.
func TestEntriesWithoutDetails(t *testing.T) {
	t.Parallel()
	f := newFeed(t, 1)
	f.setAvailability(busy, "alice")
	f.ping(f.w, "alice", "7 9 bob")
	entries, err := f.client.XRange(context.Background(), streamKey("presence:chat"), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 3)
	var texts []string
	for _, e := range entries[1:] { // after alice's availability
		_, text, _ := strings.Cut(e.Values["e"].(string), " ")
		_, text, _ = strings.Cut(text, " ")
		texts = append(texts, text)
	}
	at := int64(f.w)
	require.ElementsMatch(t, []string{
		fmt.Sprintf("67 %d 15 15 0 busy 0 8 17 x0 busy 0 8 17 xalice", at), fmt.Sprintf("3 %d 7 9 bob", at),
	}, texts)
}
