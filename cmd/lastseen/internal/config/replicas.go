package config

import (
	"strings"
	"time"

	"github.com/lastseen/lastseen/store/redisstore"
)

// ReadFrom is where requests of API keys are read from.
type ReadFrom string

// The values of ReadFrom.
const (
	ReadFromPrimary ReadFrom = "primary" // everything is read from the primary
	ReadFromReplica ReadFrom = "replica" // replicas answer what they can
)

// checkReplicas reports settings of reads from replicas that are out of range, or that the store cannot have.
func (c *Config) checkReplicas(e *Error) {
	if c.valid("redis-max-lag") && (c.RedisMaxLag < redisstore.MinLag || c.RedisMaxLag > redisstore.MaxLag) {
		e.Addf("%s: the minimum is 100ms, and the maximum 1m", c.describe("redis-max-lag"))
	}
	scheme, _, _ := strings.Cut(c.Store, ":")
	c.conflict(e.Addf, "redis-read-from", "store",
		c.RedisReadFrom == ReadFromReplica && c.OnRedis() && strings.HasSuffix(strings.ToLower(scheme), "+cluster"),
		"the replicas of a Cluster cannot be read from: set redis-read-from to primary")
}

// replicaLag returns how far behind a replica can be that is read from; 0 if none is.
func (c *Config) replicaLag() time.Duration {
	if c.RedisReadFrom != ReadFromReplica {
		return 0
	}
	return c.RedisMaxLag
}
