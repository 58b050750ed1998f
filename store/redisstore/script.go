package redisstore

import (
	"cmp"
	"context"
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

//go:embed *.lua
var luaFiles embed.FS

var scripts = struct {
	ping, leave, count, page, millisecond, trim, lease, time, probe, register, drop *redis.Script
	feedWrite, feedForget, feedRecord, feedRead, feedSnapshot, feedSweep            *redis.Script
	feedWriteDetails, feedSettle                                                    *redis.Script
	devices, devicesRead, companionsDrop, closing, closings, contacts               *redis.Script
	inCall, callStart, callStep, callHear, callRead, callExpire, callCopies         *redis.Script
	callForget                                                                      *redis.Script
	pingHidden, leaveHidden, feedWriteHidden, devicesHidden, hides, say, says       *redis.Script
}{
	ping:        newScript("clock.lua", "ping.lua"),
	leave:       newScript("clock.lua", "leave.lua"),
	count:       newScript("count.lua"),
	page:        newScript("bytes.lua", "lib.lua", "page.lua"),
	millisecond: newScript("bytes.lua", "lib.lua", "millisecond.lua"),
	trim:        newLimitedScript("clock.lua", "records.lua", "details.lua", "trim.lua"),
	lease:       newScript("lease.lua"),
	time:        newScript("time.lua"),
	probe:       newScript("probe.lua"),
	register:    newScript("register.lua"),
	drop:        newScript("drop.lua"),

	feedWrite:    newFeedScript("feedwrite.lua"),
	feedForget:   newFeedScript("records.lua", "details.lua", "feedforget.lua"),
	feedRecord:   newFeedScript("feedrecord.lua"),
	feedRead:     newScript("feedread.lua"),
	feedSnapshot: newScript("feedsnapshot.lua"),
	feedSweep:    newFeedScript("details.lua", "ends.lua", "feedsweep.lua"),
	feedSettle:   newFeedScript("feedsettle.lua"),

	feedWriteDetails: newFeedScript("details.lua", "feeddescribe.lua", "feedwrite.lua"),

	devices:        newFeedScript(append(deviceFiles[:], devicesFiles[:]...)...),
	devicesRead:    newLimitedScript("records.lua", "devicesread.lua"),
	companionsDrop: newLimitedScript("clock.lua", "details.lua", "anysays.lua", "hiddendrop.lua", "companionsdrop.lua"),
	closing:        newScript("clock.lua", "closing.lua"),
	closings:       newScript("closings.lua"),
	contacts:       newScript("contacts.lua"),

	inCall:     newFeedScript("details.lua", "ends.lua", "incall.lua"),
	callStart:  newCallScript("callstart.lua"),
	callStep:   newCallScript("callstep.lua"),
	callHear:   newCallScript("callhear.lua"),
	callRead:   newCallScript("callread.lua"),
	callExpire: newCallScript("callexpire.lua"),
	callCopies: newCallScript("callcopies.lua"),
	callForget: newCallScript("callforget.lua"),

	pingHidden:      newHidingScript("5, 2, 1", luaSource("clock.lua"), "ping.lua"),
	leaveHidden:     newHidingScript("3, 3, 2", luaSource("clock.lua"), "leave.lua"),
	feedWriteHidden: newHidingScript("5, 2, 1", feedSource("details.lua", "feeddescribe.lua"), "feedwrite.lua"),
	devicesHidden: newHidingScript("5, 3, 1, 5 + 3 * tonumber(ARGV[4])", feedSource(deviceFiles[:]...),
		devicesFiles[:]...),
	hides: redis.NewScript(luaSource("clock.lua", "hidden.lua", "hides.lua")),
	say: redis.NewScript(feedSource(append(deviceFiles[:], "ends.lua", "hidden.lua", "hiddendrop.lua")...) +
		function("leave_devices", devicesFiles[:]...) + luaSource("say.lua")),
	says: newLimitedScript("clock.lua", "details.lua", "anysays.lua", "says.lua"),
}

// deviceFiles is what devicesFiles, which records devices, needs besides the source of feeds.
var (
	deviceFiles  = [...]string{"bytes.lua", "records.lua", "details.lua"}
	devicesFiles = [...]string{"devices.lua", "devicesrule.lua", "devicessave.lua"}
)

// newFeedScript returns a script that begins with the limits of package store and with feed.lua.
func newFeedScript(files ...string) *redis.Script { return redis.NewScript(feedSource(files...)) }

func feedSource(files ...string) string {
	return limitedSource(append([]string{"clock.lua", "feed.lua"}, files...)...)
}

// newHidingScript returns a script that leaves out what is hidden, and does with the rest what some files do. Items
// says where the items are in its arguments: see hide in hidden.lua.
func newHidingScript(items, before string, files ...string) *redis.Script {
	return redis.NewScript(before + luaSource("hidden.lua") + function("write", files...) +
		"return hide(write, " + items + ")\n")
}

// function returns a function in Lua that does what files do, with arguments of its own.
func function(name string, files ...string) string {
	return "local function " + name + "(ARGV)\n" + luaSource(files...) + "end\n"
}

// newLimitedScript returns a script that begins with the limits of the contract.
func newLimitedScript(files ...string) *redis.Script { return redis.NewScript(limitedSource(files...)) }

func limitedSource(files ...string) string {
	limits := fmt.Sprintf("local max_changes, changes_kept, max_sweep, max_sweep_instant = %d, %d, %d, %d\n"+
		"local sweep_takeover, sweep_takeover_others = %d, %d\n"+
		"local max_devices, max_ends, hidden_kept = %d, %d, %d\n",
		store.MaxChanges, store.ChangesKept.Milliseconds(), store.MaxSweep, store.MaxSweepInstant,
		store.SweepTakeover.Milliseconds(), store.SweepTakeoverOthers.Milliseconds(),
		lastseen.MaxDevices, store.MaxEnds, store.HiddenKept.Milliseconds())
	return limits + luaSource(files...)
}

func newScript(files ...string) *redis.Script { return redis.NewScript(luaSource(files...)) }

// luaSource returns the text of files, one after the other.
func luaSource(files ...string) string {
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
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return nil, translate(err)
		}
	}
	return cmds, nil
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

// pipeline sends one command for each call in one round trip. Errors stay in the commands.
func (s *Store) pipeline(ctx context.Context, calls []call, send func(redis.Scripter, call) *redis.Cmd) []*redis.Cmd {
	if len(calls) == 1 {
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
