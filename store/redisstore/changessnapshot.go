package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// SnapshotChanges implements [store.Store]. It reads the users of a shard and the end of its feed at one moment, and
// all shards in one round trip.
func (s *feeds) SnapshotChanges(ctx context.Context, name string, users []string) (store.Snapshot, error) {
	ctx, cancel, c, err := s.openWith(ctx, 2*s.client.Timeout, name, s.openFeeds)
	if err != nil {
		return store.Snapshot{}, err
	}
	defer cancel()
	index := make([][]int, c.shards)
	calls := shardCall{namespace: c.namespace, script: scripts.FeedSnapshot, reads: true, uses: "df"}.onEach()
	for i := range users {
		shard := shardOf(users[i], c.shards)
		index[shard] = append(index[shard], i)
		calls[shard].args = append(calls[shard].args, &users[i])
	}
	cmds, err := s.runShardsAll(ctx, calls)
	if err != nil {
		return store.Snapshot{}, err
	}
	snapshot := store.Snapshot{Users: make([]store.Published, len(users)), Positions: make([]store.Position, c.shards)}
	for i, cmd := range cmds {
		if err := readSnapshot(&snapshot, c, i, index[i], cmd); err != nil {
			return store.Snapshot{}, err
		}
	}
	return snapshot, nil
}

// readSnapshot reads the reply of one shard: the users at the given positions of the query, and where its feed ends.
func readSnapshot(s *store.Snapshot, c *resolvedNamespace, shard int, index []int, cmd *redis.Cmd) error {
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
	watermark, end, err := readEnd(reply[0], reply[3], reply[4])
	if err != nil {
		return err
	}
	s.Positions[shard] = end.text()
	if shard == 0 || watermark < s.Watermark {
		s.Watermark = watermark
	}
	t, err := readThresholds(reply[1], reply[2])
	if err != nil {
		return err
	}
	scores, texts, err := readUsers(reply[5:], len(index))
	if err != nil {
		return err
	}
	for i, at := range index {
		state, err := c.stateOfReply(scores[i])
		if err != nil {
			return err
		}
		var d store.Details
		if text, described := texts[i].(string); described {
			d, _ = parseDetails(text)
		}
		s.Users[at] = store.Publish(t, state, d, watermark)
	}
	return nil
}

// readUsers returns the scores of n users, and the texts of their details; nil for each in a shard without any.
func readUsers(reply []any, n int) (scores, texts []any, err error) {
	lists := [2][]any{}
	for i, part := range reply {
		values, err := redisclient.Slice(part, -1)
		if err != nil {
			return nil, nil, err
		}
		lists[i%2] = append(lists[i%2], values...)
	}
	if scores, texts = lists[0], lists[1]; len(texts) == 0 {
		texts = make([]any, n)
	}
	if len(scores) != n || len(texts) != n {
		return nil, nil, fmt.Errorf("unexpected script reply of %d scores instead of %d", len(scores), n)
	}
	return scores, texts, nil
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
