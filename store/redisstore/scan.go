package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// scanPlace is where a scan of a namespace continues: in one shard, as a process of Redis numbers its members.
type scanPlace struct {
	shard   int
	cursor  string // of ZSCAN
	process string // its run ID; "" to begin the shard
}

func (p scanPlace) text() store.Place {
	return store.Place(strconv.Itoa(p.shard) + "/" + p.cursor + "/" + p.process)
}

// parseScanPlace is the reverse of text. Places are untrusted: the begin of the scan stands for one that is not valid.
func parseScanPlace(text store.Place, shards int) scanPlace {
	parts := strings.Split(string(text), "/")
	if len(parts) == 3 && isNumber(parts[0], uint64(shards)-1) && isNumber(parts[1], 1<<64-1) && len(parts[2]) <= 64 {
		shard, _ := strconv.Atoi(parts[0])
		return scanPlace{shard, parts[1], parts[2]}
	}
	return scanPlace{cursor: "0"}
}

// ScanUsers implements [store.Store]: it scans the shards one after the other, one step in each call.
func (s *Store) ScanUsers(
	ctx context.Context, namespace string, after store.Place, limit int,
) (users []string, next store.Place, err error) {
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return nil, "", err
	}
	defer cancel()
	at := parseScanPlace(after, ns.shards)
	limit = min(max(limit, 1), store.MaxWatched)
	cmd, err := s.client.Run(ctx, scripts.Scan, ns.all()[at.shard], at.process, at.cursor, limit)
	if err != nil {
		return nil, "", err
	}
	reply, err := redisclient.Slice(cmd.Val(), 3)
	if err != nil {
		return nil, "", err
	}
	var known bool
	if at.process, known = reply[0].(string); known {
		at.cursor, known = reply[1].(string)
	}
	flat, err := redisclient.Slice(reply[2], -1)
	if err != nil || !known {
		return nil, "", fmt.Errorf("unexpected script reply %v", reply)
	}
	for i := 0; i+1 < len(flat); i += 2 {
		if user, ok := flat[i].(string); ok {
			users = append(users, user)
		}
	}
	if at.cursor == "0" {
		at = scanPlace{shard: at.shard + 1, cursor: "0"}
	}
	if at.shard < ns.shards {
		next = at.text()
	}
	return users, next, nil
}
