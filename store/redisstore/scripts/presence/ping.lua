-- Records that users were seen: in a shard with a feed as feedwrite.lua does, otherwise as writeplain.lua does, without the
-- users who are hidden. All of them are functions before it.
--
-- KEYS, ARGV  see sides.lua, and then the one or the other

local write = feed_key and write_feed or write_plain
return note_missing(hidden_key and hide(write, feed_key and 5 or 6, 2) or write(ARGV))
