package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"

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
	_, err = s.client.Run(redisclient.Confirmed(ctx), scripts.Closing, s.keys.closings(),
		name+" "+user, store.ClosingsKept.Milliseconds(), store.MaxClosings)
	return err
}

// maxClosings bounds the closings that are read in one round trip.
const maxClosings = 5000

// noClosing is the place before the first closing.
const noClosing store.ClosingPlace = "0"

// Closings implements [store.Store].
func (s *Store) Closings(
	ctx context.Context, after store.ClosingPlace,
) (all []store.Closing, next store.ClosingPlace, err error) {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return nil, after, err
	}
	defer cancel()
	all, next, err = s.readClosings(ctx, after)
	if err != nil || !s.markClosings(ctx, next) {
		return lastOfEach(all), next, err
	}
	more, next, err := s.readClosings(ctx, next) // the mark, whose loss shows from now on
	if err != nil {
		return nil, after, err
	}
	return lastOfEach(append(all, more...)), next, nil
}

// readClosings is Closings without marks. Each closing of a user is in the result.
func (s *Store) readClosings(
	ctx context.Context, after store.ClosingPlace,
) (all []store.Closing, next store.ClosingPlace, err error) {
	next = after
	for n := maxClosings; n == maxClosings; {
		cmd, err := s.client.Run(ctx, scripts.Closings, s.keys.closings(), closingArgs(next)...)
		if err != nil {
			return nil, after, err
		}
		reply, err := cmd.StringSlice()
		if err != nil {
			return nil, after, err
		}
		n = len(reply) / 2
		if lost := len(reply) > 2*n; lost && next != noClosing {
			all, next = append(all, store.Closing{}), noClosing
		}
		for pair := range slices.Chunk(reply[:2*n], 2) {
			if closing, ok := parseClosing(pair[0]); ok && after != "" {
				all = append(all, closing)
			}
			next = store.ClosingPlace(pair[1] + " " + pair[0])
		}
	}
	return all, cmp.Or(next, noClosing), nil
}

// markClosings adds a closing of nothing if the newest closing was asked for long ago, and reports whether it did. So
// there is always a place by which servers see that Redis lost data. If that fails, the next read tries again.
func (s *Store) markClosings(ctx context.Context, newest store.ClosingPlace) bool {
	score, _, _ := strings.Cut(string(newest), " ")
	at, _ := strconv.ParseFloat(score, 64)
	now, err := s.client.Clock.Read(ctx)
	due := err == nil && at < float64(now.Add(-store.ClosingsKept/2))
	differs := rand.Text()[:12] // from a mark that was lost just now
	return due && s.CloseConnections(ctx, "", differs) == nil
}

// closingArgs returns the arguments of closings.lua. A place is a score and a member.
func closingArgs(after store.ClosingPlace) []any {
	if after == "" {
		return []any{maxClosings}
	}
	score, member, _ := strings.Cut(string(after), " ")
	return []any{maxClosings, score, member}
}

// parseClosing reads a member: see closing.lua. The user is the last value, and may contain spaces. A mark is not ok.
func parseClosing(member string) (c store.Closing, ok bool) {
	values := strings.SplitN(member, " ", 4)
	if len(values) != 4 {
		return c, false
	}
	at, err := strconv.ParseInt(values[0], 10, 64)
	return store.Closing{Namespace: values[2], User: values[3], At: lastseen.Instant(at)}, err == nil && values[2] != ""
}

// lastOfEach returns the last closing of each user, in order.
func lastOfEach(all []store.Closing) []store.Closing {
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
