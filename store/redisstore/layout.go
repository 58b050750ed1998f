package redisstore

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
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

// owner returns what a key that begins with the prefix belongs to: a namespace without its own key, or the store's
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

// This file alone defines how a state becomes a score:
//
//	t > 0   present, last seen at t
//	-t      left at t: the same time, mirrored at zero
//
// In milliseconds our scores are whole and below 2^53, so a float64 holds them exactly. In seconds a time has three
// fractional digits and at most 15 in all; no two such numbers have the same nearest float64, so each is read as the
// time that was written. We never write zero or a score beyond these; such scores are read as never seen.

// encoding is what the scores of one namespace mean.
type encoding struct {
	unit   Unit
	shared bool // other programs write the set, too: any number may be a score
}

// time returns an instant as a score, as Redis takes it.
func (e encoding) time(at lastseen.Instant) string {
	if e.unit != Seconds {
		return strconv.FormatInt(int64(at), 10)
	}
	if at%1000 == 0 {
		return strconv.FormatInt(int64(at/1000), 10)
	}
	return fmt.Sprintf("%d.%03d", at/1000, at%1000)
}

// perScore returns how many milliseconds a score of 1 is.
func (e encoding) perScore() int64 {
	if e.unit != Seconds {
		return 1
	}
	return 1000
}

// instant returns the time for the absolute value of a score, cut to the millisecond.
func (e encoding) instant(size float64) lastseen.Instant {
	if e.unit != Seconds {
		return lastseen.Instant(size)
	}
	// A product is rounded, and may end up in the next millisecond or the one before. A quotient of whole numbers is
	// rounded, too, but to the same float64 as the decimal number.
	at := lastseen.Instant(size * 1000)
	for float64(at)/1000 > size {
		at--
	}
	for float64(at+1)/1000 <= size {
		at++
	}
	return at
}

// state returns the state for a score; the zero state if the score is not a time.
func (e encoding) state(score float64) lastseen.State {
	size := math.Abs(score)
	if !(size < 1<<52) { // not even a number of milliseconds
		return lastseen.State{}
	}
	at := e.instant(size)
	if at < lastseen.MinInstant || at > lastseen.MaxInstant {
		return lastseen.State{}
	}
	return lastseen.State{At: at, Left: score < 0}
}

// stateOfReply reads a state from a score in a script's reply; nil stands for a missing member.
func (e encoding) stateOfReply(reply any) (lastseen.State, error) {
	if reply == nil {
		return lastseen.State{}, nil
	}
	text, ok := reply.(string)
	score, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil {
		return lastseen.State{}, fmt.Errorf("unexpected script reply: %v is not a score", reply)
	}
	return e.state(score), nil
}

// bounds returns the lowest and highest score of a range, as Redis takes them. Scores of other programs may lie between
// two milliseconds; they belong to the millisecond before.
func (e encoding) bounds(r lastseen.Range) (low, high string) {
	low, high = e.time(r.From), e.time(r.To)
	exclusive := ""
	if e.shared {
		exclusive, high = "(", e.time(r.To+1)
	}
	if r.Left {
		return exclusive + "-" + high, "-" + low
	}
	return low, exclusive + high
}
