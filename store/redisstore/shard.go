package redisstore

import (
	"hash/fnv"
	"strconv"

	"github.com/lastseen/lastseen/store"
)

// keyspace names the keys of namespaces and spreads users over them.
type keyspace struct {
	prefix string
	shards int
}

// shard returns the key of the k-th shard. Namespaces contain no colon, so keys never collide.
func (k keyspace) shard(namespace string, shard int) string {
	if k.shards == 1 {
		return k.prefix + namespace
	}
	return k.prefix + namespace + ":" + strconv.Itoa(shard)
}

// all returns the keys of all shards.
func (k keyspace) all(namespace string) []string {
	keys := make([]string, k.shards)
	for i := range keys {
		keys[i] = k.shard(namespace, i)
	}
	return keys
}

// of returns the shard a user lives in.
func (k keyspace) of(user string) int { return shardOf(user, k.shards) }

// registry is the key of the sorted set of namespace names, all with score 0.
func (k keyspace) registry() string { return k.prefix + ":namespaces" }

// meta is the key of the hash of how each namespace is stored.
func (k keyspace) meta() string { return k.prefix + ":meta" }

// hashVersion names shardOf. Whoever changes that function changes this.
const hashVersion = "fnv1a64"

// shardOf is FNV-1a-64 of the user ID modulo the number of shards.
func shardOf(user string, shards int) int {
	if shards == 1 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(user)) // never fails: see hash.Hash
	return int(h.Sum64() % uint64(shards))
}

// portion is the part of a batch that goes to one shard in one command.
type portion struct {
	key   string
	index []int // places in the batch
}

// maxPortion bounds the members of one command, so that none keeps Redis busy for long.
const maxPortion = 512

// split divides n items over the shards of their users, in portions of at most maxPortion.
func (k keyspace) split(namespace string, n int, user func(int) string) []portion {
	open := make([]*portion, k.shards)
	var portions []*portion
	for i := range n {
		shard := k.of(user(i))
		p := open[shard]
		if p == nil || len(p.index) == maxPortion {
			p = &portion{key: k.shard(namespace, shard)}
			open[shard] = p
			portions = append(portions, p)
		}
		p.index = append(p.index, i)
	}
	split := make([]portion, len(portions))
	for i, p := range portions {
		split[i] = *p
	}
	return split
}

// fold keeps one sighting a user, the latest: pings commute with pings and leaves with leaves. It
// returns where each sighting of the batch went.
func fold(batch []store.Sighting) (folded []store.Sighting, place []int) {
	place = make([]int, len(batch))
	first := make(map[string]int, len(batch))
	folded = make([]store.Sighting, 0, len(batch))
	for i, sighting := range batch {
		at, seen := first[sighting.User]
		if !seen {
			at = len(folded)
			first[sighting.User] = at
			folded = append(folded, sighting)
		}
		folded[at].At = max(folded[at].At, sighting.At)
		place[i] = at
	}
	return folded, place
}
