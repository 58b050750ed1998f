package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

var _ store.Batcher = (*Store)(nil)

// NodeOf implements [store.Batcher]: in a Cluster the name is the address of the primary that has the user's
// shard, as far as is known. Should that be wrong, the client sends the user's part on.
func (s *Store) NodeOf(name string) (of func(user string) string) {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return theOnlyLane
	}
	ns := s.keys.namespace(name)
	lanes := make(map[int]string, 1) // by shard, of which there are fewer than users
	unknown := false
	return func(user string) string {
		shard := shardOf(user, ns.shards)
		lane, found := lanes[shard]
		if !found && !unknown {
			lane, found = s.primaryOf(c, ns.shard(shard))
			lanes[shard], unknown = lane, !found // whoever does not know one does not know the others
		}
		return lane
	}
}

func theOnlyLane(string) string { return "" }

// primaryOf returns the address of the primary that has a key. The client may have to ask the Cluster for
// it, so this is bounded in time.
func (s *Store) primaryOf(c *redis.ClusterClient, key string) (address string, known bool) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	primary, err := c.MasterForKey(ctx, key)
	if err != nil {
		return "", false
	}
	return primary.Options().Addr, true
}
