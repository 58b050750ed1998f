package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

var _ store.Batcher = (*Store)(nil)

// NodeOf implements [store.Batcher]: in a Cluster the name is the address of the primary that has the user's shard, as
// far as the client knows. If it is wrong, the client redirects the call.
func (s *Store) NodeOf(name string) (of func(user string) string) {
	c, ok := s.client.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return func(string) string { return "" }
	}
	ns := s.keys.namespace(name)
	nodes := make(map[int]string, 1) // by shard, since there are fewer shards than users
	unknown := false                 // if one shard's node is not known, the others are not looked up
	return func(user string) string {
		shard := shardOf(user, ns.shards)
		if node, found := nodes[shard]; found || unknown {
			return node
		}
		// The client may have to ask the Cluster.
		ctx, cancel := context.WithTimeout(context.Background(), s.client.Timeout)
		defer cancel()
		primary, err := c.MasterForKey(ctx, ns.shard(shard))
		if unknown = err != nil; unknown {
			return ""
		}
		nodes[shard] = primary.Options().Addr
		return nodes[shard]
	}
}
