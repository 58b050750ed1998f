-- Records that users left: in a shard with devices as devices.lua does, in one with a feed alone as feedwrite.lua does,
-- otherwise as writeplain.lua does, without the users who are hidden. All of them are functions before it.
--
-- KEYS, ARGV  see sides.lua, and then the one that is called

local write, first, step, past = write_plain, 6, 2, nil
if records_key then
  write, first, step, past = write_devices, 5, 3, 5 + 3 * tonumber(ARGV[4])
elseif feed_key then
  write, first = write_feed, 5
end
return note_missing(hidden_key and hide(write, first, step, past) or write(ARGV))
