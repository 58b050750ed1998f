package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file compares the scores of a set that somebody else may have written with the unit that is configured for it.
// A set with a meta of ours is trusted; a set without one is looked at before it is read or written.

// Scores are told apart by the newest one. As seconds, unitBorder is the year 5138; as milliseconds, it is March 1973.
const unitBorder = 1e11

// In January 1970 to April 1970 by milliseconds, and in 2001 to 2286 by seconds.
const (
	leastSeconds       = 1e9
	fewestMilliseconds = 1e10
)

// look is what is asked about the scores of a namespace, for each of its keys.
type look struct {
	ends    []*redis.ZSliceCmd // the lowest and the highest score that are a time in milliseconds or seconds
	tiny    []*redis.IntCmd    // how many scores are closer to zero than any time
	large   []*redis.IntCmd    // how many are beyond any time in the unit
	beyond  []*redis.IntCmd    // how many are beyond any time in either unit, and not hidden
	members []*redis.IntCmd
}

// findings are what the replies of a look say.
type findings struct {
	exists  bool
	newest  float64 // the largest score, by absolute value; 0 if none is a time in either unit
	strange int64   // scores that are no time in the unit
	beyond  int64   // scores that are no time in either unit
}

// lookAt asks about the scores of a namespace.
func lookAt(ctx context.Context, pipe redis.Pipeliner, ns namespace) (l look) {
	const most = int64(lastseen.MaxInstant)
	high, low, hidden := strconv.FormatInt(most, 10), strconv.FormatInt(-most, 10), strconv.Itoa(hiddenFrom)
	past := strconv.FormatInt(hiddenFrom+most, 10)
	first, after := ns.time(lastseen.MinInstant), ns.time(lastseen.MaxInstant+1)
	for _, key := range ns.all() {
		up := redis.ZRangeArgs{Key: key, ByScore: true, Start: low, Stop: high, Count: 1}
		down := redis.ZRangeArgs{Key: key, ByScore: true, Start: high, Stop: low, Count: 1, Rev: true}
		l.ends = append(l.ends, pipe.ZRangeArgsWithScores(ctx, up), pipe.ZRangeArgsWithScores(ctx, down))
		l.tiny = append(l.tiny, pipe.ZCount(ctx, key, "(-"+first, "("+first))
		l.large = append(l.large, pipe.ZCount(ctx, key, after, "("+hidden), pipe.ZCount(ctx, key, "-inf", "-"+after))
		l.beyond = append(l.beyond, pipe.ZCount(ctx, key, "("+high, "("+hidden), pipe.ZCount(ctx, key, "("+past, "+inf"),
			pipe.ZCount(ctx, key, "-inf", "("+low))
		l.members = append(l.members, pipe.ZCard(ctx, key))
	}
	return l
}

// read returns what the replies say, or the first error.
func (l look) read() (f findings, err error) {
	for _, cmd := range l.ends {
		if err := cmd.Err(); err != nil {
			return f, translate(err)
		}
		for _, z := range cmd.Val() {
			f.newest = max(f.newest, math.Abs(z.Score))
		}
	}
	var counts [4]int64
	for i, cmds := range [][]*redis.IntCmd{l.tiny, l.large, l.beyond, l.members} {
		for _, cmd := range cmds {
			if err := cmd.Err(); err != nil {
				return f, translate(err)
			}
			counts[i] += cmd.Val()
		}
	}
	f.strange, f.beyond, f.exists = counts[0]+counts[1], counts[2], counts[3] > 0
	return f, nil
}

// lookInto looks at the scores of namespaces, in two round trips. It returns an error, or nil, for each: a set whose
// newest score contradicts the unit. What else is strange in a set that other programs write is logged once. Sets of
// ours are those that have a meta.
func (s *Store) lookInto(ctx context.Context, all []namespace, ours []bool) ([]findings, []error) {
	found := make([]findings, len(all))
	there, errs := s.present(ctx, all)
	pipe := s.client.Pipeline()
	looks := make([]look, len(all))
	for i, ns := range all {
		if there[i] {
			looks[i] = lookAt(ctx, pipe, ns)
		}
	}
	_, _ = pipe.Exec(ctx) // the error is also in the commands it befell
	for i, ns := range all {
		if !there[i] {
			continue
		}
		if found[i], errs[i] = looks[i].read(); errs[i] == nil {
			errs[i] = s.judge(ns, found[i], ours[i])
		}
	}
	return found, errs
}

// present reports which namespaces have keys, and an error, or nil, for each. Most of those without a meta have none:
// asking that first, and for all shards at once where that is possible, makes a name that nobody uses cheap.
func (s *Store) present(ctx context.Context, all []namespace) ([]bool, []error) {
	there, errs := make([]bool, len(all)), make([]error, len(all))
	together := MaxShards
	if s.inCluster() {
		together = 1
	}
	pipe := s.client.Pipeline()
	replies := make([][]*redis.IntCmd, len(all))
	for i, ns := range all {
		for keys := range slices.Chunk(ns.all(), together) {
			replies[i] = append(replies[i], pipe.Exists(ctx, keys...))
		}
	}
	_, _ = pipe.Exec(ctx) // the error is also in the commands it befell
	for i := range all {
		for _, reply := range replies[i] {
			errs[i] = cmp.Or(errs[i], translate(reply.Err()))
			there[i] = there[i] || reply.Val() > 0
		}
		there[i] = there[i] && errs[i] == nil
	}
	return there, errs
}

// judge returns an error if a namespace cannot be served with the scores that were found.
func (s *Store) judge(ns namespace, f findings, ours bool) error {
	other := ""
	switch {
	case ns.unit == Seconds && f.newest > unitBorder:
		other = "milliseconds"
	case ns.unit == Milliseconds && f.newest >= 1 && f.newest < unitBorder && !ours:
		other = "seconds"
	case f.newest == 0 && f.beyond > 0 && !ours:
		other = "neither seconds nor milliseconds"
	case ns.unit == Milliseconds && f.newest >= leastSeconds && f.newest < fewestMilliseconds:
		s.sighted(ns, "unit", "the scores look like seconds, but this namespace is set to milliseconds", "newest", f.newest)
	}
	if other != "" {
		return &store.MismatchError{
			Namespace: ns.name, Settings: []string{"redis-score-unit"},
			Detail: fmt.Sprintf("is set to the unit %s, but the newest score of %s, %.0f, is in %s", ns.unit, ns.key, f.newest, other),
		}
	}
	if ns.foreign && f.strange > 0 {
		s.sighted(ns, "score", "some scores are no time; those members are neither listed nor counted", "members", f.strange)
	}
	return nil
}
