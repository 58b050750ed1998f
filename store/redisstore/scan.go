package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// scanPosition is where a scan of a namespace continues: in one shard, as a process of Redis numbers its members.
type scanPosition struct {
	shard   int
	cursor  string // of ZSCAN
	process string // its run ID; "" to begin the shard
}

func (p scanPosition) text() store.Position {
	return store.Position(strconv.Itoa(p.shard) + "/" + p.cursor + "/" + p.process)
}

// parseScanPosition is the reverse of text. Positions are untrusted: the begin of the scan stands for one that is not
// valid.
func parseScanPosition(text store.Position, shards int) scanPosition {
	parts := strings.Split(string(text), "/")
	if len(parts) == 3 && isNumber(parts[0], uint64(shards)-1) && isNumber(parts[1], 1<<64-1) && len(parts[2]) <= 64 {
		shard, _ := strconv.Atoi(parts[0])
		return scanPosition{shard, parts[1], parts[2]}
	}
	return scanPosition{cursor: "0"}
}

// ScanUsers implements [store.Store]: it scans the shards one after the other, one step in each call.
func (s *Store) ScanUsers(
	ctx context.Context, namespace string, after store.Position, limit int,
) (users []string, next store.Position, err error) {
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return nil, "", err
	}
	defer cancel()
	at := parseScanPosition(after, ns.shards)
	limit = min(max(limit, 1), maxChunk)
	cmd, err := s.client.Run(ctx, scripts.Scan, ns.shard(at.shard), at.process, at.cursor, limit)
	if err != nil {
		return nil, "", err
	}
	reply, err := cmd.StringSlice()
	if err != nil || len(reply) < 2 {
		return nil, "", fmt.Errorf("unexpected script reply %v", cmd.Val())
	}
	at.process, at.cursor, users = reply[0], reply[1], reply[2:]
	if at.cursor == "0" {
		at = scanPosition{shard: at.shard + 1, cursor: "0"}
	}
	if at.shard < ns.shards {
		next = at.text()
	}
	return users, next, nil
}
