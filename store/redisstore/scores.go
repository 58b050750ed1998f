package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// This file compares the scores of a set that other programs may have written with the unit that is configured for it.
// Sets with our meta are trusted; sets without one are checked before they are read or written.

// The newest score decides which unit a set has. As seconds, unitBorder is the year 5138; as milliseconds, March 1973.
const unitBorder = 1e11

// Scores from minSeconds to maxSeconds are in 2001 to 2286 as seconds, and in January to April 1970 as milliseconds.
const (
	minSeconds = 1e9
	maxSeconds = 1e10
)

// scoreQuery is a query of the scores of a namespace, for each of its keys.
type scoreQuery struct {
	ends    []*redis.ZSliceCmd // the lowest and the highest score that is a time in milliseconds or seconds
	invalid []*redis.IntCmd    // number of scores that are not a time in the unit: too close to zero, or too far
	beyond  []*redis.IntCmd    // number of scores beyond any time in either unit
}

func queryScores(ctx context.Context, pipe redis.Pipeliner, ns namespace) (q scoreQuery) {
	const limit = int64(lastseen.MaxInstant)
	high, low := strconv.FormatInt(limit, 10), strconv.FormatInt(-limit, 10)
	first, after := ns.time(lastseen.MinInstant), ns.time(lastseen.MaxInstant+1)
	for _, key := range ns.all() {
		up := redis.ZRangeArgs{Key: key, ByScore: true, Start: low, Stop: high, Count: 1}
		down := redis.ZRangeArgs{Key: key, ByScore: true, Start: high, Stop: low, Count: 1, Rev: true}
		q.ends = append(q.ends, pipe.ZRangeArgsWithScores(ctx, up), pipe.ZRangeArgsWithScores(ctx, down))
		q.invalid = append(q.invalid, pipe.ZCount(ctx, key, "(-"+first, "("+first),
			pipe.ZCount(ctx, key, after, "+inf"), pipe.ZCount(ctx, key, "-inf", "-"+after))
		q.beyond = append(q.beyond, pipe.ZCount(ctx, key, "("+high, "+inf"),
			pipe.ZCount(ctx, key, "-inf", "("+low))
	}
	return q
}

// checkScores checks the scores of namespaces, in two round trips.
func (s *Store) checkScores(ctx context.Context, all []*resolvedNamespace) {
	s.findMembers(ctx, all)
	all = slices.DeleteFunc(all, func(c *resolvedNamespace) bool { return !c.exists })
	pipe := s.client.Pipeline()
	queries := make([]scoreQuery, len(all))
	for i, c := range all {
		queries[i] = queryScores(ctx, pipe, c.namespace)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	for i, c := range all {
		c.err = s.checkUnit(c, queries[i])
	}
}

// findMembers finds the namespaces that have members. Most of those without a meta have none: checking that first, and
// for all shards at once where possible, makes a lookup of an unused name cheap.
func (s *Store) findMembers(ctx context.Context, all []*resolvedNamespace) {
	perCommand := MaxShards
	if s.client.InCluster() {
		perCommand = 1
	}
	pipe := s.client.Pipeline()
	replies := make([][]*redis.IntCmd, len(all))
	for i, c := range all {
		for keys := range slices.Chunk(c.all(), perCommand) {
			replies[i] = append(replies[i], pipe.Exists(ctx, keys...))
		}
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	for i, c := range all {
		var keys int64
		keys, c.err = redisclient.Sum(replies[i])
		c.exists = keys > 0
	}
}

// checkUnit returns an error if the newest score of a namespace contradicts the unit. It logs other oddities.
func (s *Store) checkUnit(c *resolvedNamespace, q scoreQuery) error {
	newest, noNewest := largest(q.ends) // 0 if no score is a time in either unit
	invalid, noInvalid := redisclient.Sum(q.invalid)
	beyond, noBeyond := redisclient.Sum(q.beyond)
	if err := cmp.Or(noNewest, noInvalid, noBeyond); err != nil {
		return err
	}
	actual := ""
	switch {
	case c.unit == Seconds && newest > unitBorder:
		actual = "milliseconds"
	case c.unit == Milliseconds && newest >= 1 && newest < unitBorder && !c.hasMeta:
		actual = "seconds"
	case newest == 0 && beyond > 0 && !c.hasMeta:
		actual = "neither seconds nor milliseconds"
	case c.unit == Milliseconds && newest >= minSeconds && newest < maxSeconds:
		s.warnOnce(c.namespace, "unit", "the scores look like seconds, but this namespace is set to milliseconds",
			"newest", newest)
	}
	if actual != "" {
		return &store.MismatchError{
			Namespace: c.name, Settings: []string{"redis-score-unit"},
			Detail: fmt.Sprintf("is set to the unit %s, but the newest score of %s, %.0f, is in %s",
				c.unit, c.key, newest, actual),
		}
	}
	if c.shared && invalid > 0 {
		s.warnOnce(c.namespace, "score", "some scores are not times; those members are neither listed nor counted",
			"members", invalid)
	}
	return nil
}
