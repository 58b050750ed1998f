package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

var _ store.Grouper = (*Store)(nil)

// Lane implements [store.Grouper]: in a Cluster it is the address of the primary that has the user's
// shard, as far as is known. Should that be wrong, the client sends the user's part on.
func (s *Store) Lane(name, user string) string {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	primary, err := c.MasterForKey(ctx, s.keys.namespace(name).of(user))
	if err != nil {
		return ""
	}
	return primary.Options().Addr
}
