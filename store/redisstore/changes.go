package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// openFeeds checks that this server can serve namespaces and that they may have feeds, and fills in errors. A bit that
// was missing at the last check is read again: another server may have begun the feed since.
func (s *Store) openFeeds(ctx context.Context, all []*candidate) {
	allowed := s.allowsFeeds(ctx)
	s.verify(ctx, all)
	var unset []*candidate
	for _, c := range all {
		switch {
		case c.err != nil:
		case !allowed || !c.hasCompanions():
			c.err = store.ErrNoFeed
		case !c.bits.feed.set:
			s.agreements.recheck(c.name)
			unset = append(unset, c)
		}
	}
	s.verify(ctx, unset)
}

// openRecorded is openFeeds with an error also for namespaces without the bit. Without it, changes are not appended,
// even if there is a feed.
func (s *Store) openRecorded(ctx context.Context, all []*candidate) {
	s.openFeeds(ctx, all)
	for _, c := range all {
		if c.err == nil && !c.bits.feed.set {
			c.err = store.ErrNotRecorded
		}
	}
}

// RecordChanges implements [store.Store]. The bit is set before the feed begins. Since other servers learn of it later,
// they may write a while without appending: the feed restarts after that, so that readers do not miss anything.
func (s *Store) RecordChanges(ctx context.Context, name string, t lastseen.Thresholds) error {
	ctx, cancel, err := s.begin(ctx, 2*s.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	c := &candidate{namespace: s.keys.namespace(name)}
	s.agreements.recheck(name) // Redis may have lost the bit
	if s.openFeeds(ctx, []*candidate{c}); c.err != nil {
		return c.err
	}
	if c.bits.feed.set {
		if recorded, err := s.extendFeed(ctx, c.namespace, t, ""); err != nil || recorded {
			return err
		}
	}
	if err := s.setFeedBit(ctx, c.namespace); err != nil {
		return err
	}
	_, err = s.extendFeed(ctx, c.namespace, t, s.settleTime().Milliseconds())
	return err
}

// extendFeed has the feeds of all shards exist for longer, and reports whether they do. If settle is a number, it
// begins those that are missing.
func (s *Store) extendFeed(ctx context.Context, ns namespace, t lastseen.Thresholds, settle any) (bool, error) {
	calls := make([]call, ns.shards)
	for i, key := range ns.all() {
		calls[i] = call{key: key, others: ns.companions(key), args: []any{
			linkBase(), store.ChangesKept.Milliseconds(), t.Green.Milliseconds(), t.Yellow.Milliseconds(), settle,
		}}
	}
	cmds, err := s.runAll(ctx, scripts.feedRecord, calls)
	if err != nil {
		return false, err
	}
	for _, cmd := range cmds {
		if exists, err := cmd.Bool(); err != nil || !exists {
			return false, err
		}
	}
	return true, nil
}

// feedKeys returns the keys of a feed and, if users may have details, those of details.
func (c *candidate) feedKeys(shard string) []string {
	if c.bits.details.set {
		return append(c.deviceKeys(shard), c.details(shard), c.ends(shard))
	}
	return c.companions(shard)
}

// settleFeed is called before the bit of details is set. Other servers learn of it later, and may append and sweep
// without details meanwhile: if there is a feed, it restarts after that, so that readers do not miss anything.
func (s *Store) settleFeed(ctx context.Context, ns namespace) error {
	calls := make([]call, ns.shards)
	for i, key := range ns.all() {
		calls[i] = call{key: key, others: ns.companions(key), args: []any{linkBase(), s.settleTime().Milliseconds()}}
	}
	_, err := s.runAll(ctx, scripts.feedSettle, calls)
	return err
}

// SweepChanges implements [store.Store].
func (s *Store) SweepChanges(caller context.Context, sweeps []*store.ChangesSweep) {
	ctx, cancel, err := s.begin(caller, 2*s.timeout)
	if err != nil {
		for _, w := range sweeps {
			w.Err = err
		}
		return
	}
	defer cancel()
	all := make([]*candidate, len(sweeps))
	for i, w := range sweeps {
		all[i] = &candidate{namespace: s.keys.namespace(w.Namespace)}
	}
	s.openRecorded(ctx, all)
	var calls []call
	for i, w := range sweeps {
		clearSweep(w)
		if w.Err = all[i].err; w.Err == nil {
			calls = append(calls, s.sweepCalls(all[i], w)...)
		}
	}
	cmds := s.runSweeps(caller, calls)
	for i, w := range sweeps {
		if w.Err != nil {
			continue
		}
		for range all[i].shards {
			readSweep(w, cmds[0])
			cmds = cmds[1:]
		}
		if w.Err == store.ErrNotRecorded { //nolint:errorlint // readSweep sets this very error
			s.dropBit(ctx, w.Namespace, all[i].bits.feed)
		}
	}
}

// maxSweeps bounds the shards that are swept in one round trip. After an outage there is a backlog in all of them: then
// as many as there are would take longer than a call may, and all would fail.
const maxSweeps = 32

// runSweeps is runScripts with a deadline for each round trip.
func (s *Store) runSweeps(ctx context.Context, calls []call) (cmds []*redis.Cmd) {
	for part := range slices.Chunk(calls, maxSweeps) {
		ctx, cancel := context.WithTimeout(ctx, 2*s.timeout)
		cmds = append(cmds, s.runScripts(ctx, scripts.feedSweep, part)...)
		cancel()
	}
	return cmds
}

func clearSweep(w *store.ChangesSweep) {
	*w = store.ChangesSweep{Namespace: w.Namespace, Thresholds: w.Thresholds, Now: w.Now}
}

func (s *Store) sweepCalls(c *candidate, w *store.ChangesSweep) []call {
	calls := make([]call, c.shards)
	for i, key := range c.all() {
		calls[i] = call{key: key, others: c.feedKeys(key), args: []any{
			linkBase(), s.holder, w.Thresholds.Green.Milliseconds(), w.Thresholds.Yellow.Milliseconds(),
			int64(w.Now), s.settleTime().Milliseconds(),
		}}
	}
	return calls
}

// The results of feedsweep.lua.
const (
	sweepElsewhere = 1
	sweepRefused   = 2
)

// readSweep adds the reply of one shard to the result.
func readSweep(w *store.ChangesSweep, cmd *redis.Cmd) {
	reply, err := cmd.Int64Slice()
	switch {
	case w.Err != nil:
	case err != nil:
		w.Err = translate(err)
	case len(reply) == 0:
		w.Err = store.ErrNotRecorded
	case len(reply) != 6:
		w.Err = fmt.Errorf("unexpected script reply %v instead of 6 numbers", reply)
	case reply[0] == sweepRefused:
		w.Err = fmt.Errorf("%w: it shows %s, and a sweep up to %s was asked for",
			store.ErrClockMoved, lastseen.Instant(reply[1]), w.Now)
	default:
		w.Elsewhere = w.Elsewhere || reply[0] == sweepElsewhere
		if at := lastseen.Instant(reply[1]); w.Watermark == 0 || at < w.Watermark {
			w.Watermark = at
		}
		w.Decays += int(reply[2])
		w.Lag = max(w.Lag, time.Duration(reply[3])*time.Millisecond)
		w.Begun = w.Begun || reply[4] == 1
		w.More = w.More || reply[5] == 1
	}
}

// forgetCompanions deletes a user and their devices, and appends that to the feed, if there is one.
func (s *Store) forgetCompanions(ctx context.Context, c *candidate, user string) error {
	key := c.of(user)
	calls := []call{{key: key, others: c.othersOf(key), args: []any{linkBase(), user}}}
	cmds, err := s.runAll(confirmed(ctx), scripts.feedForget, calls)
	if err != nil {
		return err
	}
	if missing, err := cmds[0].Bool(); err != nil || !missing {
		return err
	}
	s.dropBit(ctx, c.name, c.bits.feed)
	return nil
}
