package redisstore

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

//go:embed *.lua
var luaFiles embed.FS

var scripts = struct {
	ping, leave, count, page, millisecond, trim, lease, time, probe, register *redis.Script
	feedForget, feedRecord, feedRead, feedSnapshot, feedSweep                 *redis.Script
	devices, devicesRead, closing, closings, look, deleteShard                *redis.Script
	contacts, contactsTrim, hides, say, says                                  *redis.Script
	inCall, callStart, callStep, callHear, callRead, callExpire, callCopies   *redis.Script
	callForget                                                                *redis.Script
}{
	ping: newSidesScript(
		fileSource("clock.lua"), function("write_plain", fileSource("pingplain.lua")), writeFeed(),
		hide(), fileSource("ping.lua")),
	leave: newSidesScript(
		fileSource("clock.lua"), function("write_plain", fileSource("leaveplain.lua")), writeFeed(),
		function("write_devices", fileSource("feed.lua"), devicesSource()), hide(), fileSource("leave.lua")),
	count:       newScript("count.lua"),
	page:        newScript("bytes.lua", "lib.lua", "page.lua"),
	millisecond: newScript("bytes.lua", "lib.lua", "millisecond.lua"),
	trim:        newSidesScript(fileSource("clock.lua", "records.lua", "timetext.lua", "details.lua", "trim.lua")),
	lease:       newScript("lease.lua"),
	time:        newScript("time.lua"),
	probe:       newScript("probe.lua"),
	register:    newScript("register.lua"),
	look:        newSidesScript(fileSource("clock.lua", "look.lua")),
	deleteShard: newSidesScript(
		fileSource("clock.lua", "timetext.lua", "details.lua", "anysays.lua", "hiddendrop.lua", "deleteshard.lua")),

	feedForget:   newFeedScript("records.lua", "timetext.lua", "details.lua", "hiddendrop.lua", "feedforget.lua"),
	feedRecord:   newFeedScript("feedrecord.lua"),
	feedRead:     newSidesScript(fileSource("feedread.lua")),
	feedSnapshot: newSidesScript(fileSource("feedsnapshot.lua")),
	feedSweep:    newFeedScript("timetext.lua", "details.lua", "ends.lua", "feedsweep.lua"),

	devices: newSidesScript(
		fileSource("clock.lua"), function("write", fileSource("feed.lua"), devicesSource()), hide(),
		"local past = 5 + 3 * tonumber(ARGV[4])\n"+
			"return note_missing(hidden_key and hide(write, 5, 3, 1, past) or write(ARGV))\n"),
	devicesRead:  newSidesScript(fileSource("records.lua", "devicesread.lua")),
	closing:      newScript("clock.lua", "closing.lua"),
	closings:     newScript("closings.lua"),
	contacts:     newSidesScript(fileSource("clock.lua", "contacts.lua")),
	contactsTrim: newSidesScript(fileSource("clock.lua", "hidden.lua", "contactstrim.lua")),

	inCall:     newFeedScript("timetext.lua", "details.lua", "ends.lua", "incall.lua"),
	callStart:  newCallScript("callchange.lua", "callstart.lua"),
	callStep:   newCallScript("callchange.lua", "callstep.lua"),
	callHear:   newCallScript("callchange.lua", "callhear.lua"),
	callRead:   newCallScript("callread.lua"),
	callExpire: newCallScript("callchange.lua", "callexpire.lua"),
	callCopies: newCallScript("callchange.lua", "callcopies.lua"),
	callForget: newCallScript("callchange.lua", "callforget.lua"),

	hides: newSidesScript(fileSource("clock.lua", "hidden.lua", "hides.lua")),
	say: newSidesScript(
		fileSource("clock.lua", "feed.lua", "bytes.lua", "records.lua", "timetext.lua", "details.lua", "ends.lua",
			"hidden.lua", "hiddendrop.lua"),
		function("leave_devices", devicesRule()),
		fileSource("say.lua")),
	says: newSidesScript(fileSource("clock.lua", "timetext.lua", "details.lua", "anysays.lua", "says.lua")),
}

// devicesSource records devices. It follows feed.lua.
func devicesSource() string {
	return fileSource("bytes.lua", "records.lua", "timetext.lua", "details.lua") + devicesRule()
}

// devicesRule decides what becomes of devices. It follows records.lua and details.lua.
func devicesRule() string {
	return fileSource("devices.lua", "devicesmerge.lua", "devicesrule.lua", "devicessave.lua")
}

// writeFeed is a function that records pings or leaves in a shard with a feed.
func writeFeed() string {
	return function("write_feed",
		fileSource("feed.lua", "timetext.lua", "details.lua", "feeddescribe.lua", "feedwrite.lua"))
}

// hide is the function of that name in hidden.lua. What it needs is made only if it is called.
func hide() string {
	return "local function hide(...)\n" + fileSource("hidden.lua") + "return hide(...)\nend\n"
}

// function returns a function in Lua that does what sources do, with arguments of its own.
func function(name string, sources ...string) string {
	return "local function " + name + "(ARGV)\n" + strings.Join(sources, "") + "end\n"
}

// newSidesScript returns a script that begins with sides.lua and the limits of the contract.
func newSidesScript(sources ...string) *redis.Script {
	return redis.NewScript(fileSource("sides.lua") + limits() + strings.Join(sources, ""))
}

// newFeedScript returns a script for a shard that may have a feed.
func newFeedScript(files ...string) *redis.Script {
	return newSidesScript(fileSource(append([]string{"clock.lua", "feed.lua"}, files...)...))
}

// limits returns those of the contract.
func limits() string {
	return fmt.Sprintf("local max_changes, changes_kept, max_sweep, max_sweep_instant = %d, %d, %d, %d\n"+
		"local sweep_takeover, sweep_takeover_others = %d, %d\n"+
		"local max_devices, max_ends, hidden_kept = %d, %d, %d\n",
		store.MaxChanges, store.ChangesKept.Milliseconds(), store.MaxSweep, store.MaxSweepInstant,
		store.SweepTakeover.Milliseconds(), store.SweepTakeoverOthers.Milliseconds(),
		lastseen.MaxDevices, store.MaxEnds, store.HiddenKept.Milliseconds())
}

func newScript(files ...string) *redis.Script { return redis.NewScript(fileSource(files...)) }

// fileSource returns the text of files, one after the other.
func fileSource(files ...string) string {
	var all []byte
	for _, file := range files {
		text, err := luaFiles.ReadFile(file)
		if err != nil {
			panic(err) // a misspelt name above
		}
		all = append(all, text...)
	}
	return string(all)
}

// call is one run of a script on one key, and perhaps on others in the same slot.
type call struct {
	key    string
	args   []any
	others []string
	script *redis.Script // if not nil, it is run instead of the one that the other calls run
}

func (c call) keys() []string { return append([]string{c.key}, c.others...) }

func (s *Store) runOnKey(ctx context.Context, script *redis.Script, key string, args ...any) (*redis.Cmd, error) {
	return s.runOn(ctx, script, call{key: key, args: args})
}

func (s *Store) runOn(ctx context.Context, script *redis.Script, c call) (*redis.Cmd, error) {
	cmd := s.runScripts(ctx, script, []call{c})[0]
	return cmd, translate(cmd.Err())
}

// runInts is runAll for a script that returns n numbers.
func (s *Store) runInts(ctx context.Context, script *redis.Script, n int, calls ...call) ([][]int64, error) {
	cmds, err := s.runAll(ctx, script, calls)
	if err != nil {
		return nil, err
	}
	replies := make([][]int64, len(cmds))
	for i, cmd := range cmds {
		if replies[i], err = cmd.Int64Slice(); err != nil || len(replies[i]) != n {
			return nil, fmt.Errorf("unexpected script reply %v instead of %d numbers", cmd.Val(), n)
		}
	}
	return replies, nil
}

// sliceOf returns an array of a script's reply, of n elements unless n is negative.
func sliceOf(reply any, n int) ([]any, error) {
	elements, ok := reply.([]any)
	if !ok || n >= 0 && len(elements) != n {
		return nil, fmt.Errorf("unexpected script reply of type %T instead of an array", reply)
	}
	return elements, nil
}

// runAll runs a script once for each call, all in one round trip, and returns the replies in the order of the calls.
// The error is that of the first call that failed; others may have run.
func (s *Store) runAll(ctx context.Context, script *redis.Script, calls []call) ([]*redis.Cmd, error) {
	cmds := s.runScripts(ctx, script, calls)
	return cmds, translate(firstError(cmds))
}

// firstError returns the first error of commands.
func firstError[C redis.Cmder](cmds []C) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// runScripts is runAll with the error of each call in its reply. Redis forgets scripts when it restarts or fails over;
// unknown ones are sent again in full.
func (s *Store) runScripts(ctx context.Context, script *redis.Script, calls []call) []*redis.Cmd {
	cmds := s.pipeline(ctx, calls, func(p redis.Scripter, c call) *redis.Cmd {
		return p.EvalSha(ctx, cmp.Or(c.script, script).Hash(), c.keys(), c.args...)
	})
	var missing []int
	var again []call
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			missing, again = append(missing, i), append(again, calls[i])
		}
	}
	if len(missing) == 0 {
		return cmds
	}
	resent := s.pipeline(ctx, again, func(p redis.Scripter, c call) *redis.Cmd {
		return cmp.Or(c.script, script).Eval(ctx, p, c.keys(), c.args...)
	})
	for i, cmd := range resent {
		cmds[missing[i]] = cmd
	}
	return cmds
}

// pipeline sends one command for each call in one round trip. Errors stay in the commands. In a Cluster, runShards has
// to learn at once of TRYAGAIN, after which go-redis repeats a command that is not in a pipeline.
func (s *Store) pipeline(ctx context.Context, calls []call, send func(redis.Scripter, call) *redis.Cmd) []*redis.Cmd {
	if len(calls) == 1 && (calls[0].script == nil || !s.inCluster()) {
		return []*redis.Cmd{send(s.reader(ctx), calls[0])}
	}
	pipe := s.reader(ctx).Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = send(pipe, c)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	return cmds
}
