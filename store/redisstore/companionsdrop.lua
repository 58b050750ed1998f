-- Deletes what is kept of devices and details in a shard that has no users and in which nothing is said, and up to 1000
-- hidden times that ended long ago.
--
-- KEYS     see feed.lua, records.lua, details.lua and hidden.lua; without the latter two in namespaces without details
-- ARGV[1]  the present, as the caller knows it
--
-- Returns {used, hidden}: used is 1 if the shard has users, or users who say something; hidden is 1 if there are hidden
-- times.

local hidden_key, private_key = KEYS[8], KEYS[9]
local hidden = 0
if hidden_key then
  drop_hidden(hidden_key, private_key, math.min(clock(), tonumber(ARGV[1])), 1000)
  hidden = redis.call('EXISTS', hidden_key)
end
if redis.call('EXISTS', KEYS[1]) == 1 or details_key and any_says(ARGV[1]) then
  return {1, hidden}
end
redis.call('UNLINK', unpack(KEYS, 4, math.min(#KEYS, 7)))
return {0, hidden}
