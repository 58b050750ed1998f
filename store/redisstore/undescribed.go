package redisstore

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// This file remembers users without details, so that lookups need not ask for them again: see docs/decisions/people.md.

// Users of a shard are in groups, each with a version: see details.lua.
const (
	versionsField = ""
	groups        = 8
	versionSize   = 8  // bytes
	hashedBytes   = 64 // of a user ID, at its end
)

// groupOf returns the place of a user's group, as group_of of details.lua does.
func groupOf(user string) int {
	hash := uint32(0)
	for i := max(0, len(user)-hashedBytes); i < len(user); i++ {
		hash = hash*1000003 + uint32(user[i])
	}
	hash *= 1000003 * 1000003 % (1 << 32)
	return int(hash / (1 << 32 / groups))
}

// rememberedFor is how long users of a shard are remembered, whatever the versions are. Then all are asked for, in case
// programs other than ours have written details.
const rememberedFor = 10 * time.Minute

// maxKnownShards bounds the shards of which users are remembered, each with 300 bytes. Beyond it, all are forgotten.
const maxKnownShards = 10_000

// undescribed remembers users without details. What it remembers is about one state of a user's group, and holds
// whenever the group is in that state.
type undescribed struct {
	monotonic func() time.Duration
	seed      maphash.Seed
	users     recentSet

	mu     sync.RWMutex
	shards map[string]*groupVersions // by key
}

// groupVersions is the state that the groups of a shard were in when it was last read.
type groupVersions struct {
	text  string
	marks [groups]uint64 // one for each version, and for no other
	until time.Duration
}

func newUndescribed(monotonic func() time.Duration) *undescribed {
	return &undescribed{monotonic: monotonic, seed: maphash.MakeSeed(), shards: map[string]*groupVersions{}}
}

// known returns the state of a shard that is known; nil for none.
func (u *undescribed) known(shard string) *groupVersions {
	u.mu.RLock()
	v := u.shards[shard]
	u.mu.RUnlock()
	if v != nil && u.monotonic() >= v.until {
		return nil
	}
	return v
}

// update notes the versions of a shard that were just read, and returns the state that they stand for. It returns nil
// if the shard has no versions.
func (u *undescribed) update(shard, text string) *groupVersions {
	known := u.known(shard)
	switch {
	case len(text) != groups*versionSize:
		if known != nil {
			u.forget(shard)
		}
		return nil
	case known != nil && known.text == text:
		return known
	}
	v := &groupVersions{text: text, until: u.monotonic() + rememberedFor}
	if known != nil {
		v.until = known.until
	}
	for group := range groups {
		if known.same(v, group) {
			v.marks[group] = known.marks[group]
		} else {
			v.marks[group] = rand.Uint64()
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.shards) >= maxKnownShards && u.shards[shard] == nil {
		clear(u.shards)
	}
	u.shards[shard] = v
	return v
}

// forget has all users of a shard be asked for at once, not after it is found that they have to be.
func (u *undescribed) forget(shard string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.shards, shard)
}

// same reports whether a group has the same version in two states of its shard; false if one is nil.
func (v *groupVersions) same(other *groupVersions, group int) bool {
	return v != nil && other != nil && v.version(group) == other.version(group)
}

func (v *groupVersions) version(group int) string {
	return v.text[group*versionSize : (group+1)*versionSize]
}

// divide divides the users at some places into those remembered to have no details in a state of a shard, and others.
func (u *undescribed) divide(v *groupVersions, places []int, user func(int) *string) (known, others []int) {
	hashes := make([]uint64, len(places))
	for i, at := range places {
		hashes[i] = u.hash(v, *user(at))
	}
	u.users.fetch(hashes)
	known, others = make([]int, 0, len(places)), make([]int, 0, len(places))
	for i, at := range places {
		if u.users.has(hashes[i]) {
			known = append(known, at)
		} else {
			others = append(others, at)
		}
	}
	return known, others
}

// add remembers that a user has no details in a state of a shard.
func (u *undescribed) add(v *groupVersions, user string) {
	u.users.add(u.hash(v, user))
}

// hash returns the same number for two users with a probability of 2^-64.
func (u *undescribed) hash(v *groupVersions, user string) uint64 {
	return maphash.String(u.seed, user) ^ v.marks[groupOf(user)]
}

// recentSet is a set of hashes that forgets the oldest ones when it is full. Its methods can be called concurrently.
type recentSet struct {
	lines atomic.Pointer[[setLines]setLine]
}

// A hash can be in one line, newest first. Lines are as long as those of processors' caches, and take 16 MB.
const (
	setLines = 1 << 18
	lineSize = 8
)

type setLine [lineSize]atomic.Uint64

// fetch reads the lines of hashes into the processor's caches. In such a short loop it waits for many of them at once.
func (s *recentSet) fetch(hashes []uint64) {
	if lines := s.lines.Load(); lines != nil {
		for _, hash := range hashes {
			lines[hash%setLines][0].Load()
		}
	}
}

func (s *recentSet) has(hash uint64) bool {
	lines := s.lines.Load()
	if lines == nil {
		return false
	}
	line := &lines[hash%setLines]
	for i := range line {
		if line[i].Load() == hash {
			return true
		}
	}
	return false
}

// add adds a hash. One that is in the set already takes another place.
func (s *recentSet) add(hash uint64) {
	lines := s.lines.Load()
	if lines == nil {
		s.lines.CompareAndSwap(nil, new([setLines]setLine))
		lines = s.lines.Load()
	}
	line := &lines[hash%setLines]
	for i := range line {
		hash = line[i].Swap(hash)
	}
}
