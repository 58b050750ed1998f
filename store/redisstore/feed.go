package redisstore

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// This file is about places in changes feeds, and the rights that feeds need: see docs/decisions/redis-keys.md.

// maxLink is the largest base of links: a call that adds as many as there can be stays below 2^52, which Lua still
// tells from the next number.
const maxLink = 1<<52 - 1<<24

// linkBase returns the number that the links of one call follow: see feed.lua.
func linkBase() int64 { return 1 + rand.Int64N(maxLink) }

// place is a position in the feed of one shard: the ID and the link of an entry.
type place struct{ id, link string }

func (p place) text() store.Place { return store.Place(p.id + "/" + p.link) }

// parsePlace is the reverse of text. Places are untrusted: the numbers are those that Redis and feed.lua write.
func parsePlace(text store.Place) (p place, ok bool) {
	id, link, _ := strings.Cut(string(text), "/")
	ms, seq, _ := strings.Cut(id, "-")
	const largest = 1 << 53
	return place{id, link}, isNumber(ms, largest) && isNumber(seq, largest) && isNumber(link, largest)
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

// feedLetters returns the letter of the entries if a shard has a feed to which this server may append: they are named
// with it, although Redis may have lost them.
func (s *Store) feedLetters(ctx context.Context, ns namespace, shard string, has sides) string {
	if has.has("f") && s.mayAppend(ctx, ns, shard) {
		return "s"
	}
	return ""
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
	value := ""
	switch {
	case missing != nil:
		value = "missing"
		s.feedRights.Store(rightsMissing)
	case failed:
		return
	default:
		s.feedRights.Store(rightsGranted)
	}
	s.client.Log.LogOnce(slog.LevelError, s.client.Name, "feeds", value,
		"the user of this Redis lacks rights: there are no changes feeds; allow "+feedRights, "error", missing)
}

// feedRights are the rights that only feeds need.
const feedRights = "+@stream +pexpire"

// tryFeed uses the commands of feeds on a key that does not exist.
func (s *Store) tryFeed(ctx context.Context, client *redis.Client, key string) error {
	key = s.keys.prefix + "changes:{" + key + "}"
	pipe := client.Pipeline()
	pipe.XLen(ctx, key)
	pipe.PExpire(ctx, key, time.Minute)
	_, err := pipe.Exec(ctx) // the first error
	return err
}
