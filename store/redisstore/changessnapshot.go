package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// SnapshotChanges implements [store.Store]. It reads the users of a shard and the end of its feed at one moment, and
// all shards in one round trip.
func (s *Store) SnapshotChanges(ctx context.Context, name string, users []string) (store.Snapshot, error) {
	ctx, cancel, err := s.begin(ctx, 2*s.timeout)
	if err != nil {
		return store.Snapshot{}, err
	}
	defer cancel()
	c := &candidate{namespace: s.keys.namespace(name)}
	if s.openRecorded(ctx, []*candidate{c}); c.err != nil {
		return store.Snapshot{}, c.err
	}
	index := make([][]int, c.shards)
	calls := make([]call, c.shards)
	for i, key := range c.all() {
		calls[i] = call{key: key, others: []string{c.feed(key)}}
	}
	for i := range users {
		shard := shardOf(users[i], c.shards)
		index[shard] = append(index[shard], i)
		calls[shard].args = append(calls[shard].args, &users[i])
	}
	cmds, err := s.runAll(ctx, scripts.feedSnapshot, calls)
	if err != nil {
		return store.Snapshot{}, err
	}
	snapshot := store.Snapshot{Users: make([]store.Published, len(users)), Places: make([]store.Place, c.shards)}
	for i, cmd := range cmds {
		if err := readSnapshot(&snapshot, c.namespace, i, index[i], cmd); err != nil {
			return store.Snapshot{}, err
		}
	}
	return snapshot, nil
}

// readSnapshot reads the reply of one shard: the users at the given places of the query, and where its feed ends.
func readSnapshot(s *store.Snapshot, ns namespace, shard int, index []int, cmd *redis.Cmd) error {
	reply, err := cmd.Slice()
	if err != nil {
		return err
	}
	if len(reply) == 0 {
		return store.ErrNotRecorded
	}
	if len(reply) < 5 {
		return fmt.Errorf("unexpected script reply of %d elements instead of 5", len(reply))
	}
	end, err := readEnd(&s.Watermark, reply[0], reply[3], reply[4], shard == 0)
	if err != nil {
		return err
	}
	s.Places[shard] = end.text()
	var watermark lastseen.Instant
	if _, err := readEnd(&watermark, reply[0], reply[3], reply[4], true); err != nil {
		return err
	}
	t, err := readThresholds(reply[1], reply[2])
	if err != nil {
		return err
	}
	var scores []any
	for _, part := range reply[5:] {
		part, err := sliceOf(part, -1)
		if err != nil {
			return err
		}
		scores = append(scores, part...)
	}
	if len(scores) != len(index) {
		return fmt.Errorf("unexpected script reply of %d scores instead of %d", len(scores), len(index))
	}
	for i, at := range index {
		state, err := ns.stateOfReply(scores[i])
		if err != nil {
			return err
		}
		s.Users[at] = store.Publish(t, state, watermark)
	}
	return nil
}

func readThresholds(green, yellow any) (t lastseen.Thresholds, err error) {
	for _, field := range []struct {
		reply any
		to    *time.Duration
	}{{green, &t.Green}, {yellow, &t.Yellow}} {
		text, _ := field.reply.(string)
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return t, fmt.Errorf("unexpected script reply: %v is not a threshold", field.reply)
		}
		*field.to = time.Duration(ms) * time.Millisecond
	}
	return t, nil
}
