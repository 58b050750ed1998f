-- Records that users left: in a shard with devices as devices.lua does, in one with a feed alone as feedwrite.lua does,
-- otherwise as leaveplain.lua does, without the users who are hidden. All of them are functions before it.
--
-- KEYS, ARGV  see sides.lua, and then the one that is called

local write, first, step, user_at, past = write_plain, 3, 3, 2, nil
if records_key then
  write, first, user_at, past = write_devices, 5, 1, 5 + 3 * tonumber(ARGV[4])
elseif feed_key then
  write, first, step, user_at = write_feed, 5, 2, 1
end
return note_missing(hidden_key and hide(write, first, step, user_at, past) or write(ARGV))
