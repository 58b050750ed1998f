package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// CloseConnections implements [store.Store].
func (s *Store) CloseConnections(ctx context.Context, name, user string) error {
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = s.client.Run(redisclient.Confirmed(ctx), scripts.Disconnect, s.keys.disconnects(),
		name+" "+user, store.DisconnectsKept.Milliseconds(), store.MaxDisconnects)
	return err
}

// maxDisconnects bounds the disconnects that are read in one round trip.
const maxDisconnects = 5000

// noDisconnect is the position before the first disconnect.
const noDisconnect store.DisconnectPosition = "0"

// Disconnects implements [store.Store].
func (s *Store) Disconnects(
	ctx context.Context, after store.DisconnectPosition,
) (all []store.Disconnect, next store.DisconnectPosition, err error) {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return nil, after, err
	}
	defer cancel()
	all, next, err = s.readDisconnects(ctx, after)
	if err != nil || !s.markDisconnects(ctx, next) {
		return lastOfEach(all), next, err
	}
	more, next, err := s.readDisconnects(ctx, next) // the mark, whose loss shows from now on
	if err != nil {
		return nil, after, err
	}
	return lastOfEach(append(all, more...)), next, nil
}

// readDisconnects is Disconnects without marks. Each disconnect of a user is in the result.
func (s *Store) readDisconnects(
	ctx context.Context, after store.DisconnectPosition,
) (all []store.Disconnect, next store.DisconnectPosition, err error) {
	next = after
	for n := maxDisconnects; n == maxDisconnects; {
		page, lost, err := s.disconnectsAfter(ctx, next)
		if err != nil {
			return nil, after, err
		}
		if lost && next != noDisconnect {
			all, next = append(all, store.Disconnect{}), noDisconnect
		}
		for _, z := range page {
			member, _ := z.Member.(string)
			if disconnect, ok := parseDisconnect(member); ok && after != "" {
				all = append(all, disconnect)
			}
			next = store.DisconnectPosition(strconv.FormatFloat(z.Score, 'f', -1, 64) + " " + member)
		}
		n = len(page)
	}
	return all, cmp.Or(next, noDisconnect), nil
}

// markDisconnects adds a disconnect of nothing if the newest one was asked for long ago, and reports whether it did. So
// there is always a position by which servers see that Redis lost data. If that fails, the next read tries again.
func (s *Store) markDisconnects(ctx context.Context, newest store.DisconnectPosition) bool {
	score, _, _ := strings.Cut(string(newest), " ")
	at, _ := strconv.ParseFloat(score, 64)
	now, err := s.client.Clock.Read(ctx)
	due := err == nil && at < float64(now.Add(-store.DisconnectsKept/2))
	differs := rand.Text()[:12] // from a mark that was lost just now
	return due && s.CloseConnections(ctx, "", differs) == nil
}

// disconnectsAfter reads a page of disconnects after a position, which is a score and a member; the newest one for the
// empty position. If the position is not there, because Redis lost it, the page is the first one of all that is kept.
// What is deleted between these commands is older than what they look for.
func (s *Store) disconnectsAfter(
	ctx context.Context, after store.DisconnectPosition,
) (page []redis.Z, lost bool, err error) {
	key := s.keys.disconnects()
	if after == "" {
		page, err = s.client.ZRangeWithScores(ctx, key, -1, -1).Result()
		return page, false, redisclient.Translate(err)
	}
	text, member, _ := strings.Cut(string(after), " ")
	q := redis.ZRangeArgs{Key: key, Start: "(" + text, Stop: "+inf", ByScore: true, Count: maxDisconnects}
	pipe := s.client.Pipeline()
	score, follow := pipe.ZScore(ctx, key, member), pipe.ZRangeArgsWithScores(ctx, q)
	_, _ = pipe.Exec(ctx) // each command keeps its error
	at, _ := strconv.ParseFloat(text, 64)
	if lost = errors.Is(score.Err(), redis.Nil) || score.Err() == nil && score.Val() != at; lost {
		q.Start = "-inf"
		follow = s.client.ZRangeArgsWithScores(ctx, q)
	} else if score.Err() != nil {
		return nil, false, redisclient.Translate(score.Err())
	}
	page, err = follow.Result()
	return page, lost, redisclient.Translate(err)
}

// parseDisconnect reads a member: see disconnect.lua. The user, the last value, may contain spaces. A mark is not ok.
func parseDisconnect(member string) (c store.Disconnect, ok bool) {
	values := strings.SplitN(member, " ", 4)
	if len(values) != 4 {
		return c, false
	}
	at, err := strconv.ParseInt(values[0], 10, 64)
	c = store.Disconnect{Namespace: values[2], User: values[3], At: lastseen.Instant(at)}
	return c, err == nil && values[2] != ""
}

// lastOfEach returns the last disconnect of each user, in order.
func lastOfEach(all []store.Disconnect) []store.Disconnect {
	seen := make(map[lastseen.UserKey]bool, len(all))
	kept := len(all)
	for i := len(all) - 1; i >= 0; i-- {
		if n := (lastseen.UserKey{Namespace: all[i].Namespace, User: all[i].User}); !seen[n] {
			seen[n] = true
			kept--
			all[kept] = all[i]
		}
	}
	return all[kept:]
}
