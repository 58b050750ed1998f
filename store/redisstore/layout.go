package redisstore

// Unit is the unit of a score.
type Unit string

// The units of scores. Seconds are for sorted sets that other programs write, too.
const (
	Milliseconds Unit = "ms"
	Seconds      Unit = "s"
)

// Layout is how one namespace is stored. The zero value of a field means what [Options] says.
type Layout struct {
	Key    string // of a sorted set that may exist already; "" for the prefix and the name; needs one shard
	Unit   Unit
	Shards int
}
