package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// CloseConnections implements [store.Store].
func (s *Store) CloseConnections(ctx context.Context, name, user string) error {
	ctx, cancel, err := s.begin(ctx, s.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = s.runOnKey(confirmed(ctx), scripts.closing, s.keys.closings(),
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
	ctx, cancel, err := s.begin(ctx, 2*s.timeout)
	if err != nil {
		return nil, after, err
	}
	defer cancel()
	next = after
	for n := maxClosings; n == maxClosings; {
		cmd, err := s.runOnKey(ctx, scripts.closings, s.keys.closings(), closingArgs(next)...)
		if err != nil {
			return nil, after, err
		}
		reply, err := cmd.StringSlice()
		if err != nil {
			return nil, after, err
		}
		n = len(reply) / 2
		for pair := range slices.Chunk(reply, 2) {
			if closing, ok := parseClosing(pair[0]); ok && after != "" {
				all = append(all, closing)
			}
			next = store.ClosingPlace(pair[1] + " " + pair[0])
		}
	}
	if next == "" {
		next = noClosing
	}
	return lastOfEach(all), next, nil
}

// closingArgs returns the arguments of closings.lua. A place is a score and a member.
func closingArgs(after store.ClosingPlace) []any {
	if after == "" {
		return []any{maxClosings}
	}
	score, member, _ := strings.Cut(string(after), " ")
	return []any{maxClosings, score, member}
}

// parseClosing reads a member: see closing.lua. The user is the last value, and may contain spaces.
func parseClosing(member string) (c store.Closing, ok bool) {
	values := strings.SplitN(member, " ", 4)
	if len(values) != 4 {
		return c, false
	}
	at, err := strconv.ParseInt(values[0], 10, 64)
	return store.Closing{Namespace: values[2], User: values[3], At: lastseen.Instant(at)}, err == nil
}

// lastOfEach returns the last closing of each user, in order.
func lastOfEach(all []store.Closing) []store.Closing {
	type name struct{ namespace, user string }
	seen := make(map[name]bool, len(all))
	kept := len(all)
	for i := len(all) - 1; i >= 0; i-- {
		if n := (name{all[i].Namespace, all[i].User}); !seen[n] {
			seen[n] = true
			kept--
			all[kept] = all[i]
		}
	}
	return all[kept:]
}
