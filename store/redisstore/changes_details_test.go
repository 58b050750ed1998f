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
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// detailsKey and endsKey are companions of a shard's key.
func detailsKey(key string) string { return "presence:details:{" + key + "}" }
func endsKey(key string) string    { return "presence:ends:{" + key + "}" }

// detailsOf returns the details of the users of a shard, in the form of docs/decisions/redis-keys.md, and requires that
// versions are beside them exactly if there are some.
func detailsOf(t testing.TB, client redis.Cmdable, key string) map[string]string {
	t.Helper()
	fields, err := client.HGetAll(context.Background(), detailsKey(key)).Result()
	require.NoError(t, err)
	if len(fields) > 0 {
		require.Len(t, fields[""], 64)
		delete(fields, "")
		require.NotEmpty(t, fields)
	}
	return fields
}

// said has users say something.
func (f *feed) said(said lastseen.Said, users ...string) {
	f.Helper()
	for _, user := range users {
		_, err := f.s.SetAvailability(context.Background(), "chat", user, said, f.clock())
		require.NoError(f, err)
	}
}

// keep writes details that end at an instant.
func (f *feed) keep(key, user, text string, end lastseen.Instant) {
	f.Helper()
	ctx := context.Background()
	require.NoError(f, f.client.HSet(ctx, detailsKey(key), user, text).Err())
	require.NoError(f, f.client.ZAdd(ctx, endsKey(key), redis.Z{Member: user, Score: float64(end)}).Err())
}

// ended has users say something that ends at an instant, which may have passed. They say something else now.
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

// story returns what a reader was told about a user: what was published before each change, and then.
func (r *reader) story(user string) (lines []string) {
	shown := func(status lastseen.Status, left bool, d store.Details) string {
		line := string(status)
		if left {
			line = "left"
		}
		if d.Said != (lastseen.Said{}) {
			line += fmt.Sprintf(" %s %q", d.Said.Availability, d.Said.Note)
		}
		if d.IdleSince != 0 {
			line += " idle"
		}
		if d.InCallUntil != 0 {
			line += " in a call"
		}
		return line
	}
	for _, c := range r.changes {
		if c.User == user {
			lines = append(lines, shown(c.WasStatus, c.WasLeft, c.Was)+" → "+shown(c.Status, c.Left, c.Details))
		}
	}
	return lines
}

var busy = lastseen.Said{Availability: lastseen.Busy, Note: "8 17 x"}

// idleDevice is a device that its user does not use since it was heard.
func idleDevice(user string, at lastseen.Instant) store.DeviceSighting {
	d := onDevice(user, "tab", at)
	d.Idle = at
	return d
}

// TestDetailsInFeed: each entry has what was published of its user, and what is then.
func TestDetailsInFeed(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		users := []string{"alice", "bob", "3 4 carol"}
		r := newReader(t, f.s, users...)
		f.said(busy, users...)
		f.endSettling()
		r.requireTruth()
		r.changes, r.resets = nil, 0
		f.ping(f.w, users...)
		f.ping(f.w+1, users...)
		f.leave(f.w+1, "alice")
		f.said(lastseen.Said{Note: "back at 5"}, "bob")
		f.said(lastseen.Said{Note: "back at 5"}, "bob")
		f.said(lastseen.Said{}, "3 4 carol")
		record(t, f.s, idleDevice("3 4 carol", f.w+2))
		record(t, f.s, onDevice("3 4 carol", "tab", f.w+3))
		require.NoError(t, f.s.Forget(context.Background(), "chat", "alice"))
		r.requireTruth()
		newReader(t, f.s, users...).requireTruth()
		require.Zero(t, r.resets)
		require.Equal(t, []string{
			`grey busy "8 17 x" → green busy "8 17 x"`, `green busy "8 17 x" → left busy "8 17 x"`,
			`left busy "8 17 x" → grey`,
		}, r.story("alice"))
		require.Equal(t, []string{
			`grey busy "8 17 x" → green busy "8 17 x"`, `green busy "8 17 x" → green  "back at 5"`,
		}, r.story("bob"))
		require.Equal(t, []string{
			`grey busy "8 17 x" → green busy "8 17 x"`, `green busy "8 17 x" → green`,
			`green → green idle`, `green idle → green`,
		}, r.story("3 4 carol"))
	})
}

// TestEndsAndDecays: they come in the order of their instants, and as one change if both are at the same one.
func TestEndsAndDecays(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		users := []string{"both", "ends first", "decays first", "silent", "idle", "unseen", "left", "stays"}
		f.said(busy, users...)
		record(t, f.s, idleDevice("idle", f.w-2*hour-40*second))
		f.endSettling()
		f.ended(f.w-40*second, "both", "idle")
		f.ended(f.w-50*second, "ends first", "unseen", "left")
		f.ended(f.w-30*second, "decays first")
		f.moveWatermark(f.w - 60*second)
		f.ping(f.w+60*second-hour-40*second, "both", "ends first", "decays first", "stays")
		f.leave(f.w, "left")
		r := newReader(t, f.s, users...)
		require.Equal(t, 9, f.sweep(f.w+60*second).Decays)
		r.requireTruth()
		require.Zero(t, r.resets)
		for user, want := range map[string][]string{
			"both":         {`green busy "8 17 x" → yellow`},
			"ends first":   {`green busy "8 17 x" → green`, `green → yellow`},
			"decays first": {`green busy "8 17 x" → yellow busy "8 17 x"`, `yellow busy "8 17 x" → yellow`},
			"idle":         {`yellow busy "8 17 x" idle → grey`},
			"unseen":       {`grey busy "8 17 x" → grey`},
			"left":         {`left busy "8 17 x" → left`},
			"stays":        {`green busy "8 17 x" → yellow busy "8 17 x"`},
			"silent":       nil,
		} {
			require.Equal(t, want, r.story(user), user)
		}
		f.requireDetails("idle", "silent", "stays")
	})
}

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
	url := redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	f.said(busy, "alice", "bob")
	f.endSettling()
	f.quickly(2*time.Second, func() {
		now := f.clock()
		f.moveWatermark(now)
		f.ended(now+3*second, "alice")
		require.Equal(t, 1, f.sweep(now+4*second).Decays, "the watermark passes the end")
		f.requireDetails("alice", "bob")
	})
	r := newReader(t, f.s, "alice", "bob")
	require.Empty(t, r.told["alice"].Said)

	f.said(busy, "alice")
	now := f.clock() + 4*second
	f.moveWatermark(now - 20*second)
	f.ended(now-10*second, "alice", "bob")
	f.sweep(now - 15*second)
	f.requireDetails("alice", "bob")
	f.sweep(now - 10*second)
	f.requireDetails()
	require.Zero(t, f.client.Exists(context.Background(), endsKey("presence:chat")).Val())
}

// TestManyEnds: a call ends MaxEnds of them, unless more end at one instant.
func TestManyEnds(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	f.said(busy, "alice")
	f.endSettling()
	const n = 700
	for i, user := range numbered("u", 2*n) {
		at := f.w - 10*second // n of them at one instant, and one each millisecond after it
		if i >= n {
			at += lastseen.Instant(i - n + 1)
		}
		f.keep(f.keys[0], user, fmt.Sprintf("0 busy %d ", at), at)
	}
	f.moveWatermark(f.w - 20*second)
	r := newReader(t, f.s, numbered("u", 2*n)...)
	r.limit = 1000
	var steps []int
	for more := true; more; {
		w := &store.ChangesSweep{Namespace: "chat", Thresholds: hours, Now: f.w + 20*second}
		f.s.SweepChanges(context.Background(), []*store.ChangesSweep{w})
		require.NoError(t, w.Err)
		steps, more = append(steps, w.Decays), w.More
	}
	require.Equal(t, []int{0, n, store.MaxEnds, store.MaxEnds, n - 2*store.MaxEnds}, steps)
	r.requireTruth()
	require.Len(t, r.changes, 2*n)
	require.Zero(t, r.resets)
	for range 2 * n / store.MaxEnds {
		f.sweep(f.clock())
	}
	f.requireDetails("alice")
}

// TestServerThatDoesNotKnowDetails: for some seconds another server appends without them. Once all servers know of them
// the feed begins again, so that readers learn what that server left out.
func TestServerThatDoesNotKnowDetails(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	client := newClient(t, url)
	var f *feed
	var r *reader
	unaware := func() bool { // false if the other server happened to look meanwhile, as it does every ten seconds
		require.NoError(t, client.FlushAll(context.Background()).Err())
		other := newStore(t, redisstore.Options{URL: url})
		f = startFeed(t, newStore(t, redisstore.Options{URL: url}), client, 1)
		require.NoError(t, ping(other, "chat", "somebody"))
		r = newReader(t, f.s, "alice", "bob")
		f.said(busy, "alice")
		settles, err := client.HExists(context.Background(), feedKey("presence:chat"), "s").Result()
		require.NoError(t, err)
		require.True(t, settles)
		_, err = other.Ping(context.Background(), "chat", sightingsAt(f.w, "alice"))
		require.NoError(t, err)
		entries, err := client.XRevRangeN(context.Background(), streamKey("presence:chat"), "+", "-", 1).Result()
		require.NoError(t, err)
		return strings.HasSuffix(entries[0].Values["e"].(string), " 3 "+fmt.Sprint(int64(f.w))+" alice")
	}
	require.Eventually(t, unaware, longTimeout, time.Millisecond)
	f.endSettling()
	r.requireTruth()
	require.Equal(t, 1, r.resets)
	require.Equal(t, busy, r.told["alice"].Said)
	f.said(lastseen.Said{}, "alice")
	f.said(busy, "bob")
	require.False(t, f.sweep(f.clock()).Begun, "once")
	r.requireTruth()
	require.Equal(t, 1, r.resets)
}

// TestEntriesWithoutDetails: they are as they were before there were any.
func TestEntriesWithoutDetails(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	f.said(busy, "alice")
	f.endSettling()
	f.ping(f.w, "alice", "7 9 bob")
	entries, err := f.client.XRange(context.Background(), streamKey("presence:chat"), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 2)
	var texts []string
	for _, e := range entries {
		_, text, _ := strings.Cut(e.Values["e"].(string), " ")
		_, text, _ = strings.Cut(text, " ")
		texts = append(texts, text)
	}
	at := int64(f.w)
	require.ElementsMatch(t, []string{
		fmt.Sprintf("67 %d 15 15 0 busy 0 8 17 x0 busy 0 8 17 xalice", at), fmt.Sprintf("3 %d 7 9 bob", at),
	}, texts)
}
