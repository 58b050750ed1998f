package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// ReadChanges implements [store.Store]: all in one round trip.
func (s *Store) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	name := func(i int) string { return reads[i].Namespace }
	ctx, cancel, all := s.openEach(ctx, s.client.Timeout, len(reads), name, s.openFeeds)
	defer cancel()
	pending := make([]pendingRead, len(reads))
	var calls []shardCall
	for i, r := range reads {
		*r = store.ChangesRead{Namespace: r.Namespace, After: r.After, Limit: r.Limit}
		pending[i] = pendingRead{ChangesRead: r, namespace: all[i].namespace}
		if r.Err = all[i].err; r.Err == nil {
			calls = append(calls, pending[i].calls()...)
		}
	}
	cmds := s.runShards(ctx, calls)
	for i := range pending {
		p := &pending[i]
		if p.Err != nil {
			continue
		}
		p.finish(cmds[:p.shards])
		cmds = cmds[p.shards:]
	}
}

// pendingRead is a read of a feed, shard by shard.
type pendingRead struct {
	*store.ChangesRead
	namespace
	after []position // one for each shard; none for the end
	ends  []position // of the shards' feeds
}

// calls returns the calls that read the shards. If the positions are not valid, they read only where the feed ends.
func (p *pendingRead) calls() []shardCall {
	if p.After != nil {
		p.after, p.Reset = parsePositions(p.After, p.shards)
		p.Reset = !p.Reset
	}
	calls := shardCall{namespace: p.namespace, script: scripts.FeedRead, reads: true, uses: "fs"}.onEach()
	for i := range calls {
		id := ""
		if p.after != nil {
			id = p.after[i].id
		}
		calls[i].args = []any{id, p.limit()}
	}
	return calls
}

// limit returns how many entries of a shard are read at most.
func (p *pendingRead) limit() int { return min(max(p.Limit, 1), store.MaxChangesRead) }

// parsePositions returns the positions of all shards; none if one is not valid, or if there are not as many as shards.
func parsePositions(texts []store.Position, shards int) (positions []position, ok bool) {
	if len(texts) != shards {
		return nil, false
	}
	positions = make([]position, shards)
	for i, text := range texts {
		if positions[i], ok = parsePosition(text); !ok {
			return nil, false
		}
	}
	return positions, true
}

// finish fills in the result from the replies of the shards.
func (p *pendingRead) finish(cmds []*redis.Cmd) {
	p.ends = make([]position, p.shards)
	p.Positions = make([]store.Position, p.shards)
	for i, cmd := range cmds {
		if err := p.readShard(i, cmd); err != nil {
			*p.ChangesRead = store.ChangesRead{Namespace: p.Namespace, After: p.After, Limit: p.Limit, Err: err}
			return
		}
	}
	if p.Reset {
		p.Changes, p.More = nil, false
		for i, end := range p.ends {
			p.Positions[i] = end.text()
		}
	}
}

// readShard reads the reply of one shard.
func (p *pendingRead) readShard(shard int, cmd *redis.Cmd) error {
	reply, err := cmd.Slice()
	if err != nil {
		return redisclient.Translate(err)
	}
	if len(reply) == 0 {
		return store.ErrNotRecorded
	}
	if len(reply) != 4 {
		return fmt.Errorf("unexpected script reply of %d elements instead of 4", len(reply))
	}
	watermark, end, err := readEnd(reply[0], reply[1], reply[2])
	if err != nil {
		return err
	}
	p.ends[shard] = end
	if shard == 0 || watermark < p.Watermark {
		p.Watermark = watermark
	}
	at := p.ends[shard]
	if p.after != nil {
		at = p.after[shard]
	}
	entries, err := redisclient.Slice(reply[3], -1)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		change, previous, own, ok := readEntry(entry)
		switch {
		case !ok: // another program added it
			continue
		case previous != at.link:
			p.Reset = true
			return nil
		}
		at = own
		change.Shard, change.Position = shard, own.text()
		p.Changes = append(p.Changes, change)
	}
	full := p.after != nil && len(entries) >= p.limit()
	p.More = p.More || full
	p.Reset = p.Reset || !full && at != p.ends[shard] || full && at == p.after[shard]
	p.Positions[shard] = at.text()
	return nil
}

// readEnd reads the watermark of a shard, and the feed's last entry.
func readEnd(watermark, id, link any) (lastseen.Instant, position, error) {
	at, err := redisclient.Int(watermark)
	end := position{}
	end.id, _ = id.(string)
	end.link, _ = link.(string)
	if err != nil || end.id == "" || end.link == "" {
		return 0, end, fmt.Errorf("unexpected script reply: %v, %v, %v is not the end of a feed", watermark, id, link)
	}
	return lastseen.Instant(at), end, nil
}

// readEntry reads an entry, and the link of the one before: see append in feed.lua. It returns false for an entry of
// another program.
func readEntry(reply any) (c store.Change, previous string, own position, ok bool) {
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		return c, "", own, false
	}
	own.id, _ = pair[0].(string)
	fields, _ := pair[1].([]any)
	if len(fields) != 2 || fields[0] != "e" {
		return c, "", own, false
	}
	text, _ := fields[1].(string)
	values := strings.SplitN(text, " ", 5) // the user is the last one, and may contain spaces
	if len(values) != 5 {
		return c, "", own, false
	}
	if own.link = values[0]; !readChange(&c, own.id, values[2], values[3], values[4]) {
		return c, "", own, false
	}
	if previous = values[1]; previous == "" { // of the same call
		n, err := strconv.ParseInt(own.link, 10, 64)
		if err != nil {
			return c, "", own, false
		}
		previous = strconv.FormatInt(n-1, 10)
	}
	return c, previous, own, true
}

// readChange reads what an entry says about a user. It returns false for an entry of another program.
func readChange(c *store.Change, id, codes, time, user string) bool {
	ms, _, _ := strings.Cut(id, "-")
	recorded, err1 := strconv.ParseInt(ms, 10, 64)
	code, err2 := strconv.ParseUint(codes, 10, 8)
	at, err3 := strconv.ParseInt(time, 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return false
	}
	c.User, c.Recorded = user, lastseen.Instant(recorded)
	if code == codeContacts {
		c.Contacts = true
		return true
	}
	if code >= codeDetails {
		code -= codeDetails
		if !readDetails(c) {
			return false
		}
	}
	if code/8 > codeLeft || code%8 > codeLeft {
		return false
	}
	c.At = lastseen.Instant(at)
	c.WasStatus, c.WasLeft = statuses[code/8], code/8 == codeLeft
	c.Status, c.Left = statuses[code%8], code%8 == codeLeft
	return true
}

// readDetails reads the details that precede the user ID of an entry. It returns false if their lengths are missing or
// too large. Details that another program wrote count as none.
func readDetails(c *store.Change) bool {
	values := strings.SplitN(c.User, " ", 3)
	if len(values) != 3 {
		return false
	}
	was, err1 := strconv.ParseUint(values[0], 10, 16)
	is, err2 := strconv.ParseUint(values[1], 10, 16)
	if errors.Join(err1, err2) != nil || was+is > uint64(len(values[2])) {
		return false
	}
	text := values[2]
	c.Was, _ = parseDetails(text[:was])
	c.Details, _ = parseDetails(text[was : was+is])
	c.User = text[was+is:]
	return true
}

// statuses are those of the codes in feed.lua: unknown, grey, yellow, green, left.
var statuses = [...]lastseen.Status{lastseen.Grey, lastseen.Grey, lastseen.Yellow, lastseen.Green, lastseen.Grey}

const (
	codeLeft     = 4
	codeDetails  = 64  // is added for an entry with details
	codeContacts = 128 // of an entry that says that the user's contacts changed
)

// SnapshotChanges implements [store.Store]. It reads the users of a shard and the end of its feed at one moment, and
// all shards in one round trip.
func (s *Store) SnapshotChanges(ctx context.Context, name string, users []string) (store.Snapshot, error) {
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
	green, noGreen := redisclient.Int(reply[1])
	yellow, noYellow := redisclient.Int(reply[2])
	if err := cmp.Or(noGreen, noYellow); err != nil {
		return err
	}
	t := lastseen.Thresholds{
		Green: time.Duration(green) * time.Millisecond, Yellow: time.Duration(yellow) * time.Millisecond,
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
