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
	s.record(ctx, s.client.Timeout, batches, recording{})
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, name string, items []store.PresenceEvent) ([]lastseen.State, error) {
	b := &eventBatch{Namespace: name, Items: items}
	s.record(ctx, 2*s.client.Timeout, []*eventBatch{b}, recording{left: true})
	return b.States, b.Err
}

// eventBatch is a batch of pings or of leaves, or of what devices assert.
type eventBatch = store.Batch[store.PresenceEvent]

// recording is what batches record: pings, leaves, or what devices assert.
type recording struct {
	left    bool
	devices []store.DeviceEvent // the items of the only batch
	window  time.Duration       // of devices
}

// pendingBatch is a batch that is being written.
type pendingBatch struct {
	resolvedNamespace // its namespace; err is why the batch failed
	batch             *eventBatch
	unique            []store.PresenceEvent // one per user
	place             []int                 // for each item, the place of its user in unique
	states            []lastseen.State      // of unique
	created           bool                  // a key was made
	hidden            bool                  // all of it is hidden, in a namespace that does not exist
}

// record writes batches. Empty ones have no effect.
func (s *Store) record(ctx context.Context, limit time.Duration, batches []*eventBatch, what recording) {
	ctx, cancel, err := s.client.Begin(ctx, limit)
	if err != nil {
		for _, b := range batches {
			b.Err = err
		}
		return
	}
	defer cancel()
	all, namespaces := s.prepare(batches)
	s.verify(ctx, namespaces)
	written, namespaces := s.withoutHidden(ctx, all)
	s.admit(ctx, namespaces)
	s.write(redisclient.Confirmed(ctx), written, what)
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
	recording
	sampled bool // the time since the first user's previous ping is wanted
}

// write sends batches to their shards, in as few round trips as chunks allows, and fills in the resulting states. Once
// a batch has an error, the rest of it is not sent.
func (s *Store) write(ctx context.Context, all []*pendingBatch, what recording) {
	var cmds []writeCmd
	members := 0
	for _, b := range all {
		chunks, trip := s.chunks(b, what)
		for _, c := range chunks {
			if members += len(c.index); members > trip {
				s.send(ctx, cmds)
				cmds, members = nil, len(c.index)
			}
			if b.err == nil {
				sampled := !what.left && what.devices == nil && s.samplesGap()
				cmds = append(cmds, writeCmd{b, c, what, sampled})
			}
		}
	}
	s.send(ctx, cmds)
}

// chunks returns what scripts record of a batch, and how many members a round trip records at most, by what is known of
// the side keys.
func (s *Store) chunks(b *pendingBatch, what recording) (chunks []*chunk, trip int) {
	if what.devices != nil {
		user := func(i int) string { return what.devices[i].User }
		return b.split(len(what.devices), maxDeviceChunk, user), maxDeviceTrip
	}
	size, trip := maxChunk, maxMembers
	for _, key := range b.all() {
		switch known := s.sides.of(key).stored; {
		case what.left && known.has("r"):
			size, trip = maxDeviceChunk, maxDeviceTrip
		case known.has("f"):
			size = min(size, maxFeedChunk)
		}
	}
	return b.split(len(b.unique), size, b.user), trip
}

// user returns the user at a place of unique.
func (b *pendingBatch) user(i int) string { return b.unique[i].User }

func (s *Store) send(ctx context.Context, cmds []writeCmd) {
	calls := make([]shardCall, len(cmds))
	for i, c := range cmds {
		calls[i] = c.call()
	}
	for i, reply := range s.runShards(ctx, calls) {
		c := cmds[i]
		err := redisclient.Translate(reply.Err())
		if err == nil {
			err = s.readStates(c, reply.Val())
		}
		c.err = cmp.Or(c.err, err)
	}
}

// call returns the script for a chunk.
func (c writeCmd) call() shardCall {
	run := shardCall{namespace: c.namespace, shard: c.key, script: scripts.Ping, uses: "dfhp"}
	switch {
	case c.devices != nil:
		run.script, run.uses, run.creates = scripts.Devices, "dfhmpr", c.createsOfDevices()
		run.appends, run.args = true, c.deviceArgs()
		return run
	case c.left:
		run.script, run.uses = scripts.Leave, "dfhmpr"
	}
	run.adapt = func(run *shardCall, has sides) {
		if run.appends = has.has("f"); c.left && has.has("r") {
			run.appends, run.args = true, c.leaveArgs()
		} else {
			run.args = c.args(run.appends)
		}
	}
	return run
}

// item returns the time of an item of the chunk, and the state of its user.
func (c writeCmd) item(at int) (sent lastseen.Instant, state *lastseen.State) {
	if c.devices != nil {
		return c.devices[at].At, &c.states[c.place[at]]
	}
	return c.unique[at].At, &c.states[at]
}

// times returns the earliest and the latest time of the chunk.
func (c writeCmd) times() (earliest, latest lastseen.Instant) {
	earliest = lastseen.MaxInstant
	for _, at := range c.index {
		sent, _ := c.item(at)
		earliest, latest = min(earliest, sent), max(latest, sent)
	}
	return earliest, latest
}

// args returns the arguments of writeplain.lua or, with a feed, those of feedwrite.lua. Most events of a batch have the
// same time: it is formatted once. Users and times are passed as pointers: as strings, each would be copied into an
// interface.
func (c writeCmd) args(feed bool) []any {
	earliest, latest := c.times()
	args := append(make([]any, 0, 5+2*len(c.index)), int64(latest), c.left, c.sampled)
	if !feed {
		args = append(args, c.perScore(), "-"+c.time(earliest))
	}
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

// hidesPart is the place in a reply at which scripts report that items were hidden.
const hidesPart = 5

// readStates reads the reply to a chunk.
func (s *Store) readStates(c writeCmd, reply any) error {
	parts, err := redisclient.Slice(reply, -1)
	if err != nil || len(parts) == 0 {
		return cmp.Or(err, errors.New("empty script reply"))
	}
	c.created = c.created || parts[0] == int64(1)
	if len(parts) > 4 && parts[4] != nil {
		s.warnOfRecords(c.namespace, parts[4])
	}
	if len(parts) == 1 || parts[1] == nil {
		for _, at := range c.index {
			sent, state := c.item(at)
			*state = lastseen.State{At: sent, Left: c.left}
		}
	} else if err := s.readScores(c, parts); err != nil {
		return err
	}
	if c.sampled && len(parts) > 2 {
		s.observeGap(c, parts[2])
	}
	return nil
}

// readScores reads the scores in a reply.
func (s *Store) readScores(c writeCmd, parts []any) error {
	scores, err := redisclient.Slice(parts[1], len(c.index))
	if err != nil {
		return err
	}
	for i, at := range c.index {
		sent, state := c.item(at)
		if *state, err = c.stateOfReply(scores[i]); err != nil {
			return err
		}
		if len(parts) <= hidesPart && state.Known() && state.At < sent {
			s.replaced.Add(1) // without hidden times, only a time too far ahead results in an earlier one
		}
	}
	return nil
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
	_, err := s.runShardsAll(redisclient.Confirmed(ctx), []shardCall{{
		namespace: ns, shard: ns.of(user), script: scripts.FeedForget, reads: true, uses: "defhmpr", appends: true,
		args: []any{user},
	}})
	return err
}
