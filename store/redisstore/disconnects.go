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
		cmd, err := s.client.Run(ctx, scripts.Disconnects, s.keys.disconnects(), disconnectArgs(next)...)
		if err != nil {
			return nil, after, err
		}
		reply, err := cmd.StringSlice()
		if err != nil {
			return nil, after, err
		}
		n = len(reply) / 2
		if lost := len(reply) > 2*n; lost && next != noDisconnect {
			all, next = append(all, store.Disconnect{}), noDisconnect
		}
		for pair := range slices.Chunk(reply[:2*n], 2) {
			if disconnect, ok := parseDisconnect(pair[0]); ok && after != "" {
				all = append(all, disconnect)
			}
			next = store.DisconnectPosition(pair[1] + " " + pair[0])
		}
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

// disconnectArgs returns the arguments of disconnects.lua. A position is a score and a member.
func disconnectArgs(after store.DisconnectPosition) []any {
	if after == "" {
		return []any{maxDisconnects}
	}
	score, member, _ := strings.Cut(string(after), " ")
	return []any{maxDisconnects, score, member}
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
