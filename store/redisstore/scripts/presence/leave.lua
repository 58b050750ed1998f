-- Records that users left: in a shard with devices as devices.lua does, otherwise as feedwrite.lua does, without the users
-- who are hidden. Both are functions before it.
--
-- KEYS, ARGV  see sides.lua, and then the one that is called

local write, step, past = write_feed, 2, nil
if records_key then
  write, step, past = write_devices, 3, 5 + 3 * tonumber(ARGV[4])
end
return note_missing(hidden_key and hide(write, 5, step, 1, past) or write(ARGV))
