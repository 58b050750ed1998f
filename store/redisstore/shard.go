package redisstore

import (
	"cmp"
	"hash/fnv"
	"strconv"

	"github.com/lastseen/lastseen/store"
)

// keyspace names the keys of namespaces and says how each is stored.
type keyspace struct {
	prefix  string
	shards  int
	unit    Unit // "" is Milliseconds
	layouts map[string]Layout
}

// namespace is how one namespace is stored: its keys, its shards and what its scores mean.
type namespace struct {
	name   string
	key    string // of the only shard, or what the shards' keys begin with
	shards int
	own    bool // whether the key is the one that its name gives it
	encoding
}

func (k keyspace) namespace(name string) namespace {
	layout := k.layouts[name]
	unit := cmp.Or(layout.Unit, k.unit, Milliseconds)
	return namespace{
		name: name, key: cmp.Or(layout.Key, k.prefix+name), shards: cmp.Or(layout.Shards, k.shards),
		own:      layout.Key == "",
		encoding: encoding{unit: unit, shared: unit != Milliseconds || layout.Key != "" || layout.Unit != ""},
	}
}

// The store's own keys: see docs/decisions/redis-keys.md. A lease expires by itself, even if its holder crashed.
func (k keyspace) registry() string           { return k.prefix + ":namespaces" }
func (k keyspace) meta() string               { return k.prefix + ":meta" }
func (k keyspace) lease(name string) string   { return k.prefix + ":lease:" + name }
func (k keyspace) notes(name string) string   { return k.prefix + ":notes:" + name }
func (k keyspace) heartbeat(id string) string { return k.prefix + ":heartbeat:" + id }
func (k keyspace) probe() string              { return k.prefix + ":probe" }
func (k keyspace) disconnects() string        { return k.prefix + ":closings" }
func (k keyspace) secret() string             { return k.prefix + ":secret" }
func (k keyspace) calling() string            { return k.prefix + ":calls" }
func (k keyspace) copying() string            { return k.prefix + ":copy" }

// shard returns the key of the k-th shard. Namespaces contain no colon, so keys never collide.
func (n namespace) shard(k int) string {
	if n.shards == 1 {
		return n.key
	}
	return n.key + ":" + strconv.Itoa(k)
}

func (n namespace) all() []string {
	keys := make([]string, n.shards)
	for i := range keys {
		keys[i] = n.shard(i)
	}
	return keys
}

func (n namespace) of(user string) string { return n.shard(shardOf(user, n.shards)) }

// hashVersion names shardOf: a change of that function needs a new name.
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

// chunk is the part of a batch that goes to one shard in one command.
type chunk struct {
	key   string
	index []int // places in the batch
}

// command returns a command on a key with an argument for each item. Texts are passed as pointers: as strings, each
// would be copied into an interface.
func (c *chunk) command(name, key string, arg func(at int) any) []any {
	args := append(make([]any, 0, 2+len(c.index)), name, key)
	for _, at := range c.index {
		args = append(args, arg(at))
	}
	return args
}

// These bound the members of one command, so that none keeps Redis busy for long.
const (
	maxChunk     = 512
	maxFeedChunk = 256 // with a feed: each member may be appended
	// maxDeviceChunk is for records: if a user has 32, Redis takes up to 100 µs to change more than a time.
	maxDeviceChunk = 32
)

// split divides count items over the shards of their users, in chunks of at most a size.
func (n namespace) split(count, size int, user func(int) string) []*chunk {
	open := make([]*chunk, n.shards)
	var chunks []*chunk
	for i := range count {
		shard := shardOf(user(i), n.shards)
		if c := open[shard]; c == nil || len(c.index) == size {
			open[shard] = &chunk{key: n.shard(shard)}
			chunks = append(chunks, open[shard])
		}
		open[shard].index = append(open[shard].index, i)
	}
	return chunks
}

// dedupe keeps one event per user, the latest: pings commute with pings and leaves with leaves. It also returns, for
// each event of the batch, the place of its user's.
func dedupe(batch []store.PresenceEvent) (unique []store.PresenceEvent, place []int) {
	place = make([]int, len(batch))
	first := make(map[string]int, len(batch))
	unique = make([]store.PresenceEvent, 0, len(batch))
	for i, event := range batch {
		at, seen := first[event.User]
		if !seen {
			at = len(unique)
			first[event.User] = at
			unique = append(unique, event)
		}
		unique[at].At = max(unique[at].At, event.At)
		place[i] = at
	}
	return unique, place
}
