package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file keeps changes feeds.

// openFeeds checks that this server can serve namespaces and that they can have feeds, and fills in errors.
func (s *Store) openFeeds(ctx context.Context, all []*resolvedNamespace) {
	allowed := s.allowsFeeds(ctx)
	s.verify(ctx, all)
	for _, c := range all {
		if c.err == nil && (!allowed || !c.hasSideKeys()) {
			c.err = store.ErrNoFeed
		}
	}
}

// RecordChanges implements [store.Store].
func (s *Store) RecordChanges(ctx context.Context, name string, t lastseen.Thresholds) error {
	ctx, cancel, c, err := s.openWith(ctx, 2*s.client.Timeout, name, s.openFeeds)
	if err != nil {
		return err
	}
	defer cancel()
	if !c.hasMeta && !c.exists {
		return store.ErrNotRecorded
	}
	_, err = s.runShardsAll(ctx, shardCall{
		namespace: c.namespace, script: scripts.FeedRecord, creates: "fs", appends: true,
		args: []any{store.ChangesKept.Milliseconds(), t.Green.Milliseconds(), t.Yellow.Milliseconds()},
	}.onEach())
	return err
}

// AdvanceChanges implements [store.Store].
func (s *Store) AdvanceChanges(caller context.Context, advances []*store.ChangesAdvance) {
	name := func(i int) string { return advances[i].Namespace }
	_, cancel, all := s.openEach(caller, 2*s.client.Timeout, len(advances), name, s.openFeeds)
	defer cancel()
	var calls []shardCall
	for i, w := range advances {
		*w = store.ChangesAdvance{Namespace: w.Namespace, Thresholds: w.Thresholds, Now: w.Now}
		if w.Err = all[i].err; w.Err == nil {
			t := w.Thresholds
			calls = append(calls, shardCall{
				namespace: all[i].namespace, script: scripts.FeedAdvance, reads: true, uses: "def", appends: true,
				args: []any{s.holder, t.Green.Milliseconds(), t.Yellow.Milliseconds(), int64(w.Now)},
			}.onEach()...)
		}
	}
	cmds := s.runAdvances(caller, calls)
	for i, w := range advances {
		if w.Err != nil {
			continue
		}
		for range all[i].shards {
			readAdvance(w, cmds[0])
			cmds = cmds[1:]
		}
	}
}

// maxAdvances bounds the shards that are advanced in one round trip. After an outage there is a backlog in all of them:
// then as many as there are would take longer than a call may, and all would fail.
const maxAdvances = 32

// runAdvances is runShards with a deadline for each part.
func (s *Store) runAdvances(ctx context.Context, calls []shardCall) (cmds []*redis.Cmd) {
	for part := range slices.Chunk(calls, maxAdvances) {
		ctx, cancel := context.WithTimeout(ctx, 2*s.client.Timeout)
		cmds = append(cmds, s.runShards(ctx, part)...)
		cancel()
	}
	return cmds
}

// The results of feedadvance.lua.
const (
	advanceElsewhere = 1
	advanceRefused   = 2
)

// readAdvance adds the reply of one shard to the result.
func readAdvance(w *store.ChangesAdvance, cmd *redis.Cmd) {
	reply, err := cmd.Int64Slice()
	switch {
	case w.Err != nil:
	case err != nil:
		w.Err = redisclient.Translate(err)
	case len(reply) == 0:
		w.Err = store.ErrNotRecorded
	case len(reply) != 6:
		w.Err = fmt.Errorf("unexpected script reply %v instead of 6 numbers", reply)
	case reply[0] == advanceRefused:
		w.Err = fmt.Errorf("%w: it shows %s, and an advance up to %s was asked for",
			store.ErrClockMoved, lastseen.Instant(reply[1]), w.Now)
	default:
		w.Elsewhere = w.Elsewhere || reply[0] == advanceElsewhere
		if at := lastseen.Instant(reply[1]); w.Watermark == 0 || at < w.Watermark {
			w.Watermark = at
		}
		w.Transitions += int(reply[2])
		w.Lag = max(w.Lag, time.Duration(reply[3])*time.Millisecond)
		w.Begun = w.Begun || reply[4] == 1
		w.More = w.More || reply[5] == 1
	}
}

// This file is about positions in changes feeds, and the rights that feeds need: see docs/decisions/redis-keys.md.

// maxLink is the largest base of links: a call that adds as many as there can be stays below 2^52, which Lua still
// tells from the next number.
const maxLink = 1<<52 - 1<<24

// linkBase returns the number that the links of one call follow: see feed.lua.
func linkBase() int64 { return 1 + rand.Int64N(maxLink) }

// position is the position in the feed of one shard: the ID and the link of an entry.
type position struct{ id, link string }

func (p position) text() store.Position { return store.Position(p.id + "/" + p.link) }

// parsePosition is the reverse of text. Positions are untrusted: the numbers are those that Redis and feed.lua write.
func parsePosition(text store.Position) (p position, ok bool) {
	id, link, _ := strings.Cut(string(text), "/")
	ms, seq, _ := strings.Cut(id, "-")
	const largest = 1 << 53
	return position{id, link}, isNumber(ms, largest) && isNumber(seq, largest) && isNumber(link, largest)
}

// isNumber reports whether a text is a whole number up to a limit, written as strconv would.
func isNumber(text string, limit uint64) bool {
	n, err := strconv.ParseUint(text, 10, 64)
	return err == nil && n <= limit && strconv.FormatUint(n, 10) == text
}

// What is known about the rights that feeds need.
const (
	rightsUnknown = iota
	rightsGranted
	rightsMissing
)

// allowsFeeds reports whether this server may use the commands of feeds. The first call asks Redis.
func (s *Store) allowsFeeds(ctx context.Context) bool {
	if s.feedRights.Load() == rightsUnknown {
		s.checkFeedRights(ctx)
	}
	return s.feedRights.Load() != rightsMissing
}

// mayAppend reports whether this server may append to the feed of a shard. If not, it ends the feed, since it is about
// to write without appending.
func (s *Store) mayAppend(ctx context.Context, ns namespace, shard string) bool {
	if s.allowsFeeds(ctx) {
		return true
	}
	_ = s.client.Unlink(ctx, ns.sideKey(shard, 'f')).Err() // if Redis is away, the write fails as well
	return false
}

// checkFeedRights finds out whether this server may use the commands of feeds, and logs it if not. If a server cannot
// be asked, what was known stays.
func (s *Store) checkFeedRights(ctx context.Context) {
	var missing error
	failed := false
	for _, err := range s.client.ForEachPrimary(ctx, s.tryFeed) {
		reply := redisclient.ReplyError(err)
		switch {
		case err == nil:
		case strings.HasPrefix(reply, "NOPERM") || strings.HasPrefix(reply, "unknown command"):
			missing = err
		default:
			failed = true
		}
	}
	switch {
	case missing != nil:
		s.feedRights.Store(rightsMissing)
	case failed:
		return
	default:
		s.feedRights.Store(rightsGranted)
	}
	s.client.Log.LogIf(missing != nil, slog.LevelError, s.client.Name, "feeds",
		"the user of this Redis lacks rights: there are no changes feeds; allow "+rightsOfFeeds, "error", missing)
}

// rightsOfFeeds are the rights that only feeds need.
const rightsOfFeeds = "+@stream +pexpire"

// tryFeed uses the commands of feeds on a key that does not exist.
func (s *Store) tryFeed(ctx context.Context, client *redis.Client, key string) error {
	key = s.keys.prefix + "changes:{" + key + "}"
	pipe := client.Pipeline()
	pipe.XLen(ctx, key)
	pipe.PExpire(ctx, key, time.Minute)
	_, err := pipe.Exec(ctx) // the first error
	return err
}
