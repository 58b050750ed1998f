package redisstore

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// maxMembers bounds the members that are written in one round trip, and therefore its time.
const maxMembers = 4096

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, name string, items []store.PresenceEvent) ([]lastseen.State, error) {
	b := &eventBatch{Namespace: name, Items: items}
	s.PingBatches(ctx, []*eventBatch{b})
	return b.States, b.Err
}

// PingBatches implements [store.Batcher].
func (s *Store) PingBatches(ctx context.Context, batches []*eventBatch) {
	s.record(ctx, s.client.Timeout, batches, false)
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, name string, items []store.PresenceEvent) ([]lastseen.State, error) {
	b := &eventBatch{Namespace: name, Items: items}
	s.record(ctx, 2*s.client.Timeout, []*eventBatch{b}, true)
	return b.States, b.Err
}

// eventBatch is a batch of pings or of leaves.
type eventBatch = store.Batch[store.PresenceEvent]

// pendingBatch is a batch that is being written.
type pendingBatch struct {
	resolvedNamespace // its namespace; err is why the batch failed
	batch             *eventBatch
	unique            []store.PresenceEvent // one per user
	place             []int                 // for each item, the place of its user in unique
	states            []lastseen.State      // of unique
	created           bool                  // a key was made
}

// record writes batches of pings or, with left, of leaves. Empty batches have no effect.
func (s *Store) record(ctx context.Context, limit time.Duration, batches []*eventBatch, left bool) {
	ctx, cancel, err := s.client.Begin(ctx, limit)
	if err != nil {
		fail(batches, err)
		return
	}
	defer cancel()
	all, namespaces := s.prepare(batches)
	s.verify(ctx, namespaces)
	written, namespaces := s.withoutHidden(ctx, all)
	s.admit(ctx, namespaces)
	s.write(redisclient.Confirmed(ctx), written, left)
	s.afterWrite(ctx, written)
	for _, b := range all {
		b.finish()
	}
}

// afterWrite does what writes found to be necessary.
func (s *Store) afterWrite(ctx context.Context, all []*pendingBatch) {
	var created []*resolvedNamespace
	for _, b := range all {
		switch {
		case b.err != nil:
			// Part of it may have created the key again without a reply: the next write registers the namespace.
			s.metaCache.recheck(b.name)
		case b.created:
			// The first member of a key, perhaps since another server deleted the namespace.
			created = append(created, &b.resolvedNamespace)
		}
	}
	s.register(ctx, created, 0) // all at once, since a batch can create hundreds of namespaces
}

func fail[T any](batches []*store.Batch[T], err error) {
	for _, b := range batches {
		b.Err = err
	}
}

func (s *Store) prepare(batches []*eventBatch) (all []*pendingBatch, namespaces []*resolvedNamespace) {
	for _, batch := range batches {
		if len(batch.Items) == 0 {
			continue
		}
		b := &pendingBatch{batch: batch}
		b.namespace = s.keys.namespace(batch.Namespace)
		b.unique, b.place = dedupe(batch.Items)
		b.states = make([]lastseen.State, len(b.unique))
		all, namespaces = append(all, b), append(namespaces, &b.resolvedNamespace)
	}
	return all, namespaces
}

func (b *pendingBatch) finish() {
	if b.batch.Err = b.err; b.err != nil {
		return
	}
	b.batch.States = make([]lastseen.State, len(b.place))
	for i, at := range b.place {
		b.batch.States[i] = b.states[at]
	}
}

// writeCmd is a chunk of a batch, in one command.
type writeCmd struct {
	*pendingBatch
	*chunk
	sampled bool // the time since the first user's previous ping is wanted
}

// write sends batches to their shards, in as few round trips as chunkSize allows, and fills in the resulting states.
// Once a batch has an error, the rest of it is not sent.
func (s *Store) write(ctx context.Context, all []*pendingBatch, left bool) {
	var cmds []writeCmd
	members := 0
	for _, b := range all {
		size, trip := s.chunkSize(b.namespace, left)
		for _, c := range b.split(len(b.unique), size, func(i int) string { return b.unique[i].User }) {
			if members += len(c.index); members > trip {
				s.send(ctx, cmds, left)
				cmds, members = nil, len(c.index)
			}
			if b.err == nil {
				cmds = append(cmds, writeCmd{b, c, !left && s.samplesGap()})
			}
		}
	}
	s.send(ctx, cmds, left)
}

// chunkSize returns how many members a script and a round trip record at most, by what is known of the side keys.
func (s *Store) chunkSize(ns namespace, left bool) (size, trip int) {
	size = maxChunk
	for k := range ns.shards {
		switch known := s.sides.of(ns.shard(k)).stored; {
		case left && known.has("r"):
			return maxDeviceChunk, maxDeviceTrip
		case known.has("f"):
			size = maxFeedChunk
		}
	}
	return size, maxMembers
}

func (s *Store) send(ctx context.Context, cmds []writeCmd, left bool) {
	calls := make([]shardCall, len(cmds))
	for i, c := range cmds {
		calls[i] = c.call(left)
	}
	for i, reply := range s.runShards(ctx, calls) {
		c := cmds[i]
		err := redisclient.Translate(reply.Err())
		if err == nil {
			err = s.readStates(c, reply.Val(), left)
		}
		c.err = cmp.Or(c.err, err)
	}
}

// call returns the script for a chunk.
func (c writeCmd) call(left bool) shardCall {
	run := shardCall{namespace: c.namespace, shard: c.key, script: scripts.Ping, uses: "dfhp"}
	if left {
		run.script, run.uses = scripts.Leave, "dfhmpr"
	}
	run.adapt = func(run *shardCall, has sides) {
		switch {
		case left && has.has("r"):
			run.appends, run.args = true, c.leaveArgs()
		case has.has("f"):
			run.appends, run.args = true, c.feedArgs(left)
		default:
			run.args = c.args(left)
		}
	}
	return run
}

// args returns the arguments of pingplain.lua or leaveplain.lua. Most events of a batch have the same time: it is
// formatted once. Users and times are passed as pointers: as strings, each would be copied into an interface.
func (c writeCmd) args(left bool) []any {
	earliest, latest := lastseen.MaxInstant, lastseen.Instant(0)
	for _, at := range c.index {
		earliest, latest = min(earliest, c.unique[at].At), max(latest, c.unique[at].At)
	}
	args := make([]any, 0, 4+3*len(c.index))
	if left {
		args = append(args, int64(latest), c.perScore())
	} else {
		args = append(args, "-"+c.time(earliest), int64(latest), c.perScore(), c.sampled)
	}
	var last lastseen.Instant
	var score, past *string
	for _, at := range c.index {
		event := &c.unique[at]
		if score == nil || event.At != last {
			text := c.score(lastseen.State{At: event.At, Left: left})
			last, score = event.At, &text
			if left {
				next := c.time(event.At + 1)
				past = &next
			}
		}
		if args = append(args, score); left {
			args = append(args, past)
		}
		args = append(args, &event.User)
	}
	return args
}

// feedArgs returns the arguments of feedwrite.lua.
func (c writeCmd) feedArgs(left bool) []any {
	latest := lastseen.Instant(0)
	for _, at := range c.index {
		latest = max(latest, c.unique[at].At)
	}
	args := append(make([]any, 0, 3+2*len(c.index)), int64(latest), left, c.sampled)
	var last lastseen.Instant
	var score *string
	for _, at := range c.index {
		event := &c.unique[at]
		if score == nil || event.At != last {
			text := c.time(event.At)
			last, score = event.At, &text
		}
		args = append(args, score, &event.User)
	}
	return args
}

func (s *Store) readStates(c writeCmd, reply any, left bool) error {
	parts, err := s.readWritten(c.pendingBatch, c.chunk, reply, left,
		func(at int) lastseen.Instant { return c.unique[at].At },
		func(at int, state lastseen.State) { c.states[at] = state })
	if err == nil && c.sampled && len(parts) > 2 {
		s.observeGap(c, parts[2])
	}
	return err
}

// hidesPart is the place in a reply at which scripts report that items were hidden.
const hidesPart = 5

// readWritten reads what the replies to events of users and of devices have in common, and returns all of the reply.
// Sent has the time of each item, and set takes the state of its user.
func (s *Store) readWritten(
	b *pendingBatch, c *chunk, reply any, left bool, sent func(int) lastseen.Instant, set func(int, lastseen.State),
) (parts []any, err error) {
	parts, err = redisclient.Slice(reply, -1)
	if err != nil || len(parts) == 0 {
		return nil, cmp.Or(err, errors.New("empty script reply"))
	}
	b.created = b.created || parts[0] == int64(1)
	if len(parts) > 4 && parts[4] != nil {
		s.warnOfRecords(b.namespace, parts[4])
	}
	if len(parts) == 1 || parts[1] == nil {
		for _, at := range c.index {
			set(at, lastseen.State{At: sent(at), Left: left})
		}
		return parts, nil
	}
	scores, err := redisclient.Slice(parts[1], len(c.index))
	if err != nil {
		return nil, err
	}
	for i, at := range c.index {
		state, err := b.stateOfReply(scores[i])
		if err != nil {
			return nil, err
		}
		set(at, state)
		if len(parts) <= hidesPart && state.Known() && state.At < sent(at) {
			s.replaced.Add(1) // without hidden times, only a time too far ahead results in an earlier one
		}
	}
	return parts, nil
}

// gapSample is how many commands there are for each whose gap is observed, on average. An observation costs Redis one
// ZSCORE.
const gapSample = 16

// samplesGap reports whether the next command is one whose gap is observed.
func (s *Store) samplesGap() bool { return s.gap != nil && rand.IntN(gapSample) == 0 }

// observeGap calls the gap function with the time between the ping of a command's first user and the previous one, if
// the user was present before and this ping is later.
func (s *Store) observeGap(c writeCmd, previous any) {
	before, err := c.stateOfReply(previous)
	now := c.states[c.index[0]]
	if err == nil && before.Known() && !before.Left && !now.Left && now.At > before.At {
		s.gap(c.name, now.At.Sub(before.At))
	}
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, namespace, user string) error {
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return err
	}
	defer cancel()
	failed := cmp.Or(s.forgetCalls(ctx, ns, user), s.forgetUser(ctx, ns, user))
	return cmp.Or(failed, s.forgetContacts(ctx, ns, user)) // whatever failed, as much as possible is deleted
}

// forgetUser deletes a user with devices and the user's availability, and appends that to the feed, if there is one.
func (s *Store) forgetUser(ctx context.Context, ns namespace, user string) error {
	shard := ns.of(user)
	if !ns.hasSideKeys() {
		return redisclient.Translate(s.client.ZRem(redisclient.Confirmed(ctx), shard, user).Err())
	}
	_, err := s.runShardsAll(redisclient.Confirmed(ctx), []shardCall{{
		namespace: ns, shard: shard, script: scripts.FeedForget, reads: true, uses: "defhmpr", appends: true,
		args: []any{user},
	}})
	return err
}
