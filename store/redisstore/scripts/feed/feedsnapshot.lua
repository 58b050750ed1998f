-- Reads users, and the end of the feed at the same moment. It changes nothing.
--
-- KEYS  see sides.lua; feed_key is in feed.lua, details_key in details.lua
-- ARGV  users
--
-- Returns {watermark, green, yellow, ID and link of the last entry, scores, details, …}; {} if there is no feed. Each array
-- of scores is for as many users as Lua can pass to one command. The details of these users follow it, {} for none.

local chunk = 4000
local reply = feed_key and redis.call('HMGET', feed_key, 'w', 'g', 'y', 'i', 'l')
if not reply or not reply[1] then
  return {}
end
for first = 1, #ARGV, chunk do
  local last = math.min(#ARGV, first + chunk - 1)
  reply[#reply + 1] = redis.call('ZMSCORE', KEYS[1], unpack(ARGV, first, last))
  reply[#reply + 1] = details_key and redis.call('HMGET', details_key, unpack(ARGV, first, last)) or {}
end
return reply
