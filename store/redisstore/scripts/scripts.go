// Package scripts has the Lua scripts that run in Redis, in folders by what they are for. Each main file describes its
// keys, arguments and reply. The other files are parts of several scripts. See docs/decisions/redis-keys.md.
package scripts

import (
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

//go:embed */*.lua
var files embed.FS

// The scripts. Those in this first part are of last-seen times.
var (
	Ping  = record(writeFeed(), hide(), text("presence/ping"))
	Leave = record(writeFeed(),
		function("write_devices", text("feed/feed"), recordDevices()), hide(), text("presence/leave"))
	Count       = redis.NewScript(text("presence/count"))
	Page        = redis.NewScript(text("shared/bytes", "presence/lib", "presence/page"))
	Scan        = redis.NewScript(text("presence/scan"))
	Millisecond = redis.NewScript(text("shared/bytes", "presence/lib", "presence/millisecond"))
	Trim        = sides(
		text("shared/clock", "shared/records", "shared/timetext", "shared/details", "presence/trim"))

	// Of servers:
	Lease      = redis.NewScript(text("servers/lease"))
	Note       = redis.NewScript(text("servers/note"))
	Time       = redis.NewScript(text("servers/time"))
	Probe      = redis.NewScript(text("servers/probe"))
	Register   = redis.NewScript(text("servers/register"))
	Disconnect = redis.NewScript(text("shared/clock", "servers/disconnect"))

	// Of shards as a whole:
	Look        = sides(text("shared/clock", "shared/look"))
	DeleteShard = sides(
		text("shared/clock", "shared/timetext", "shared/details", "availability/hiddendrop", "shared/deleteshard"))

	// Of changes feeds:
	FeedForget = feed(
		"shared/records", "shared/timetext", "shared/details", "availability/hiddendrop", "feed/feedforget")
	FeedRecord   = feed("feed/feedrecord")
	FeedRead     = sides(text("feed/feedread"))
	FeedSnapshot = sides(text("feed/feedsnapshot"))
	FeedAdvance  = feed("shared/timetext", "shared/details", "shared/ends", "feed/feedadvance")

	// Of devices:
	Devices = sides(
		text("shared/clock"), function("write", text("feed/feed"), recordDevices()), hide(),
		"local past = 5 + 3 * tonumber(ARGV[4])\n"+
			"return note_missing(hidden_key and hide(write, 5, 3, past) or write(ARGV))\n")
	DevicesRead = sides(text("shared/records", "devices/devicesread"))

	// Of contacts:
	Contacts     = feed("contacts/contacts")
	ContactsTrim = feed("availability/hidden", "contacts/contactstrim")

	// Of availability:
	IsHidden        = sides(text("shared/clock", "availability/hidden", "availability/is_hidden"))
	SetAvailability = sides(
		text("shared/clock", "feed/feed", "shared/bytes", "shared/records", "shared/timetext", "shared/details",
			"shared/ends", "availability/hidden", "availability/hiddendrop"),
		function("leave_devices", devicesRule()), text("availability/set_availability"))

	// Of calls:
	CallStart     = calls("calls/callchange", "calls/callstart")
	CallStep      = calls("calls/callchange", "calls/callstep")
	CallKeepAlive = calls("calls/callchange", "calls/callkeepalive")
	CallRead      = calls("calls/callread")
	CallExpire    = calls("calls/callchange", "calls/callexpire")
	CallCopies    = calls("calls/callchange", "calls/callcopies")
	CallForget    = calls("calls/callchange", "calls/callforget")
	InCall        = feed("shared/timetext", "shared/details", "shared/ends", "calls/incall")
)

// recordDevices records devices. It follows feed.lua.
func recordDevices() string {
	return text("shared/bytes", "shared/records", "shared/timetext", "shared/details") + devicesRule()
}

// devicesRule decides what becomes of devices. It follows records.lua and details.lua.
func devicesRule() string {
	return text("devices/devices", "devices/devicesmerge", "devices/devicesrule", "devices/devicessave")
}

// writeFeed is a function that records pings or leaves in a shard with a feed.
func writeFeed() string {
	return function("write_feed", text("feed/feed", "shared/timetext", "shared/details", "feed/feedwrite"))
}

// hide is the function of that name in hidden.lua. What it needs is made only if it is called.
func hide() string {
	return "local function hide(...)\n" + text("availability/hidden") + "return hide(...)\nend\n"
}

// function returns a function in Lua that does what sources do, with its own arguments.
func function(name string, sources ...string) string {
	return "local function " + name + "(ARGV)\n" + strings.Join(sources, "") + "end\n"
}

// record returns a script that records pings or leaves, by writeplain.lua in a shard without side keys.
func record(sources ...string) *redis.Script {
	plain := function("write_plain", text("presence/writeplain")) + text("presence/plain")
	return redis.NewScript(text("shared/sides", "shared/clock") + plain + sideKeys() + strings.Join(sources, ""))
}

// sides returns a script for shards that may have side keys.
func sides(sources ...string) *redis.Script {
	return redis.NewScript(text("shared/sides") + sideKeys() + strings.Join(sources, ""))
}

// sideKeys is sidekeys.lua and the limits of the contract.
func sideKeys() string {
	limits := fmt.Sprintf("local max_changes, changes_kept, max_advance, max_advance_instant = %d, %d, %d, %d\n"+
		"local advance_takeover, advance_takeover_others = %d, %d\n"+
		"local max_devices, max_ends, hidden_kept = %d, %d, %d\n",
		store.MaxChanges, store.ChangesKept.Milliseconds(), store.MaxAdvance, store.MaxAdvanceInstant,
		store.AdvanceTakeover.Milliseconds(), store.AdvanceTakeoverOthers.Milliseconds(),
		lastseen.MaxDevices, store.MaxEnds, store.HiddenKept.Milliseconds())
	return text("shared/sidekeys") + limits
}

// feed returns a script for a shard that may have a changes feed.
func feed(names ...string) *redis.Script {
	return sides(text("shared/clock", "feed/feed"), text(names...))
}

// calls returns a script that begins with the limits of calls and with calls.lua.
func calls(names ...string) *redis.Script {
	limits := fmt.Sprintf("local max_call_batch, max_call_gap, calls_kept = %d, %d, %d\n"+
		"local max_calls_of_user, max_calls = %d, %d\n",
		store.MaxCallBatch, store.MaxCallGap.Milliseconds(), store.CallsKept.Milliseconds(),
		store.MaxCallsOfUser, store.MaxCalls)
	return redis.NewScript(limits +
		text("shared/clock", "calls/callrule", "shared/timetext", "calls/calltext", "calls/calls") + text(names...))
}

// text returns the text of files, one after the other. The names are without their extension.
func text(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		source, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // a misspelt name above
		}
		all.Write(source)
	}
	return all.String()
}
