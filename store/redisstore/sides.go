package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file names the side keys of shards, and runs scripts that use them: see sides.lua and
// docs/decisions/redis-keys.md.

// hasSideKeys reports whether a namespace can have side keys. They are in the slot of the shard's key because their
// names contain that key in braces, so there can be no other braces. Sets that other programs write have none, since
// side keys would miss those writes.
func (n namespace) hasSideKeys() bool {
	return n.own && !n.shared && !strings.ContainsAny(n.key, "{}")
}

func (n namespace) namedKey(what, shard string) string {
	return strings.TrimSuffix(n.key, n.name) + what + ":{" + shard + "}"
}

// sideLetters are the letters of side keys, in alphabetical order, and sideWords the words in their names.
const sideLetters = "cdefhkmprsu"

var sideWords = [...]string{
	"contacts", "details", "ends", "feed", "hidden", "contactmarks", "devicemeta", "private", "devices", "changes",
	"contactuses",
}

// sideKey returns the side key of a shard with a letter.
func (n namespace) sideKey(shard string, letter rune) string {
	return n.namedKey(sideWords[strings.IndexRune(sideLetters, letter)], shard)
}

// sideKeys returns the side keys of a shard with some letters, and the key of the hash.
func (n namespace) sideKeys(shard, letters string) []string {
	keys := make([]string, 0, len(letters)+1)
	for _, letter := range letters {
		keys = append(keys, n.sideKey(shard, letter))
	}
	return append(keys, n.sidesKey(shard))
}

// sidesKey returns the key of the hash that says which side keys a shard has, and sidesField is its field.
func (n namespace) sidesKey(shard string) string { return n.namedKey("keys", shard) }

const sidesField = "keys"

// sides are the side keys that a shard has: '-' and their letters in alphabetical order. "" means that nothing is
// known, or that there is no hash.
type sides string

func (has sides) has(letter string) bool { return strings.Contains(string(has), letter) }

// only returns those of some letters that the shard has, and others that it may get, in alphabetical order.
func (has sides) only(letters, others string) string {
	if len(has) < 2 && others == "" {
		return ""
	}
	return strings.Map(func(letter rune) rune {
		text := string(letter)
		if strings.Contains(others, text) || strings.Contains(letters, text) && has.has(text) {
			return letter
		}
		return -1
	}, sideLetters)
}

// knownSides remembers the hashes of shards as this process last saw them. The zero value is ready for use.
type knownSides struct {
	mu     sync.RWMutex
	shards map[string]knownShard
}

type knownShard struct {
	stored sides  // what the hash has
	lost   string // letters in it of keys that do not exist
	round  int64  // of the metaCache, in which the keys were last compared
}

// maxKnownShards bounds the shards that are remembered. When there are more, all are forgotten.
const maxKnownShards = 100_000

// keepKnown is for how many rounds a comparison holds: a minute.
const keepKnown = int64(6)

func (k *knownSides) of(shard string) knownShard {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.shards[shard]
}

func (k *knownSides) set(shard string, known knownShard) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shards == nil || len(k.shards) >= maxKnownShards {
		k.shards = map[string]knownShard{}
	}
	if known.stored == "" {
		delete(k.shards, shard)
		return
	}
	k.shards[shard] = known
}

// learn notes what the hash of a shard has; "" if there is none.
func (k *knownSides) learn(shard string, stored sides) {
	known := k.of(shard)
	if known.stored == "" || without(string(known.stored), string(stored)) != "" {
		known.round = -keepKnown // it may be an older hash, so the keys are compared before a script runs
	}
	k.set(shard, knownShard{stored: stored, round: known.round})
}

// warnOnce logs the first remark of its type about a namespace.
func (s *Store) warnOnce(ns namespace, about, message string, args ...any) {
	args = append([]any{"namespace", ns.name, "key", ns.key}, args...)
	s.client.Log.LogIf(true, slog.LevelWarn, ns.name, about, message, args...)
}

// shardCall is one run of a script that uses the side keys of a shard.
type shardCall struct {
	namespace
	shard  string
	script *redis.Script
	reads  bool // it writes nothing, and has the empty reply where nothing exists

	uses    string // letters of the side keys that the script uses if they exist
	creates string // letters of those that it may create
	appends bool   // to the feed, if there is one: the first argument is a number that links follow, see feed.lua
	args    []any

	// adapt, if set, changes the call according to the side keys that exist.
	adapt func(c *shardCall, has sides)
}

// onEach returns the call on each shard of its namespace.
func (c shardCall) onEach() []shardCall {
	calls := make([]shardCall, c.shards)
	for i, key := range c.all() {
		calls[i], calls[i].shard = c, key
	}
	return calls
}

// quickSideRuns is how often a script is sent again at once while its shard's side keys change, or its slot moves.
const quickSideRuns = 5

// runShards runs scripts, all in one round trip, and returns the replies in the order of the calls, with the error of
// each call in its reply. For half of the time, it repeats those for which the side keys were others than this process
// knew, and those that Redis refuses while some of their keys have moved to another node. A call that used all of the
// time would look like an outage to the others that wait for this node.
func (s *Store) runShards(ctx context.Context, calls []shardCall) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(calls))
	open, needs := make([]int, len(calls)), make([]string, len(calls))
	for i := range calls {
		open[i] = i
	}
	waiting, cancel := context.WithTimeout(ctx, s.client.RepeatTime(ctx))
	defer cancel()
	for run := 0; len(open) > 0; run++ {
		if run > quickSideRuns && !store.Pause(waiting, redisclient.RepeatPause) {
			break
		}
		ready, again := s.lookFirst(ctx, calls, open, cmds)
		batch := make([]redisclient.Call, len(ready))
		for i, at := range ready {
			batch[i] = s.sidesCall(ctx, calls[at], needs[at])
		}
		for i, cmd := range s.client.RunEach(ctx, batch) {
			at := ready[i]
			if cmds[at] = cmd; !s.repeats(&calls[at], cmd, &needs[at]) {
				s.forgetIfCreated(&calls[at], batch[i])
				continue
			}
			if again = append(again, at); cmd.Err() == nil {
				cmd.SetErr(fmt.Errorf("%w: the side keys of %s keep changing", store.ErrUnavailable, calls[at].shard))
			}
		}
		open = again
	}
	return cmds
}

// runShardsAll is runShards with the first error.
func (s *Store) runShardsAll(ctx context.Context, calls []shardCall) ([]*redis.Cmd, error) {
	cmds := s.runShards(ctx, calls)
	return cmds, redisclient.Translate(redisclient.FirstError(cmds))
}

// sidesCall returns the call of a script as sides.lua takes it, and also names the side keys that it asked for.
func (s *Store) sidesCall(ctx context.Context, c shardCall, needs string) redisclient.Call {
	known := s.sides.of(c.shard)
	exist := sides(without(string(known.stored), known.lost))
	if c.adapt != nil {
		c.adapt(&c, exist)
	}
	args := make([]any, 0, 4+len(c.args))
	if c.appends {
		args = append(args, linkBase())
	}
	args = append(args, c.args...)
	if !c.hasSideKeys() {
		return redisclient.Call{Key: c.shard, Script: c.script, Args: append(args, "", "", "")}
	}
	if c.appends && exist.has("f") && s.mayAppend(ctx, c.namespace, c.shard) {
		needs += "s" // although Redis may have lost the entries
	}
	letters := exist.only(c.uses, c.creates+needs)
	return redisclient.Call{
		Key: c.shard, Script: c.script, Others: c.sideKeys(c.shard, letters),
		Args: append(args, without(c.uses, known.lost), letters, string(known.stored)),
	}
}

// without returns letters without others.
func without(letters, others string) string {
	return strings.Map(func(letter rune) rune {
		if strings.ContainsRune(others, letter) {
			return -1
		}
		return letter
	}, letters)
}

// forgetIfCreated has the next call on a shard look if this one may have created side keys.
func (s *Store) forgetIfCreated(c *shardCall, run redisclient.Call) {
	letters, stored := run.Args[len(run.Args)-2].(string), run.Args[len(run.Args)-1].(string)
	if without(letters, stored) != "" {
		s.sides.set(c.shard, knownShard{})
	}
}

// repeats reports whether a call did nothing because the side keys are others than this process knew, or because the
// script needs one that was not named.
func (s *Store) repeats(c *shardCall, cmd *redis.Cmd, needs *string) bool {
	if redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") {
		s.sides.set(c.shard, knownShard{}) // perhaps a key that was named does not exist
		return true
	}
	text, ok := cmd.Val().(string) // also if no replica confirmed that: nothing was written
	if !ok {
		return false
	}
	if stored, ok := strings.CutPrefix(text, "SIDES "); ok {
		s.sides.learn(c.shard, sides(stored))
		return true
	}
	need, ok := strings.CutPrefix(text, "NEED ")
	*needs += need
	return ok
}

// sidesOf looks which side keys the shards of a namespace have, and returns them in the order of the shards; "" for
// those that do not exist.
func (s *Store) sidesOf(ctx context.Context, ns namespace) ([]sides, error) {
	all := make([]sides, ns.shards)
	if !ns.hasSideKeys() {
		return all, nil
	}
	calls, open := shardCall{namespace: ns, reads: true}.onEach(), make([]int, ns.shards)
	for i, c := range calls {
		open[i] = i
		s.sides.set(c.shard, knownShard{})
	}
	cmds := make([]*redis.Cmd, ns.shards)
	s.lookFirst(ctx, calls, open, cmds)
	for i, cmd := range cmds {
		if cmd != nil && cmd.Err() != nil {
			return nil, redisclient.Translate(cmd.Err())
		}
		all[i] = s.sides.of(calls[i].shard).stored
	}
	return all, nil
}

// deleteShards deletes the shards of a namespace with all side keys, each in one script. Given the present, it leaves
// those that are used; with looks, all of them. It reports whether there are any that are used.
func (s *Store) deleteShards(ctx context.Context, ns namespace, present any, looks bool) (used bool, err error) {
	cmds, err := s.runShardsAll(ctx, shardCall{
		namespace: ns, script: scripts.DeleteShard, reads: true, uses: sideLetters, args: []any{present, looks},
	}.onEach())
	for _, cmd := range cmds {
		used = used || cmd.Val() == int64(1)
	}
	return used, err
}

// deleteUnused deletes what is left of shards without users. What is hidden in them stays. With looks, it only reports
// whether a shard is used.
func (s *Store) deleteUnused(ctx context.Context, ns namespace, looks bool) (used bool, err error) {
	now, err := s.client.Clock.Read(ctx)
	if err != nil {
		return false, err
	}
	return s.deleteShards(ctx, ns, int64(now), looks)
}
