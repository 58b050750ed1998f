package redisstore

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lastseen/lastseen"
)

// Unit is the unit of a score.
type Unit string

// The units of scores. Seconds, with fractions, are for sorted sets that other programs write, too.
const (
	Milliseconds Unit = "ms"
	Seconds      Unit = "s"
)

// Layout describes how one namespace is stored. The zero value of a field means the one of [Options].
type Layout struct {
	Key    string // of a sorted set that may exist already; "" for the prefix and the name; needs one shard
	Unit   Unit   // any value but "", also Milliseconds, means that other programs write the set, too
	Shards int
}

// checkLayouts returns an error if the options contradict each other, or if two namespaces would share a key.
func (o Options) checkLayouts() error {
	if err := checkLayout(Layout{Unit: o.Unit, Shards: o.Shards}); err != nil {
		return err
	}
	taken := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Layouts)) {
		layout := o.Layouts[name]
		if err := lastseen.CheckNamespace(name); err != nil {
			return err
		}
		layout.Shards = cmp.Or(layout.Shards, o.Shards)
		layout.Unit = cmp.Or(layout.Unit, o.Unit)
		if err := checkLayout(layout); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
		if layout.Key == "" {
			continue
		}
		if other, ok := taken[layout.Key]; ok {
			return fmt.Errorf("namespaces %s and %s: both have the key %q", other, name, layout.Key)
		}
		taken[layout.Key] = name
		if owner, ok := o.owner(layout.Key); ok && owner != name {
			return fmt.Errorf("namespace %s: the key %q is where %s belongs", name, layout.Key, owner)
		}
	}
	return nil
}

func checkLayout(l Layout) error {
	switch {
	case l.Shards < MinShards || l.Shards > MaxShards:
		return fmt.Errorf("%d shards: use %d to %d", l.Shards, MinShards, MaxShards)
	case l.Unit != Milliseconds && l.Unit != Seconds:
		return fmt.Errorf("unit %q: use %s or %s", l.Unit, Milliseconds, Seconds)
	case l.Key != "" && l.Shards > 1:
		return fmt.Errorf("the key %q and %d shards: one key is one shard", l.Key, l.Shards)
	}
	return nil
}

// owner returns what a key that begins with the prefix belongs to: a namespace without a key of its own, or the store's
// own data.
func (o Options) owner(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, o.Prefix)
	if !ok {
		return "", false
	}
	if strings.HasPrefix(rest, ":") {
		return "the list of namespaces", true
	}
	name := regexp.MustCompile(`:[0-9]+$`).ReplaceAllString(rest, "")
	return name, lastseen.CheckNamespace(name) == nil && o.Layouts[name].Key == ""
}
