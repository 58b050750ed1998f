-- Reads users, and the end of the feed at the same moment. It changes nothing.
--
-- KEYS[1]  one shard of a namespace
-- KEYS[2]  its feed: see feed.lua
-- KEYS[6]  the details of users, in namespaces in which they may have some: see details.lua
-- ARGV     users
--
-- Returns {watermark, green, yellow, ID and link of the last entry, scores, …}; {} if there is no feed. Each array of
-- scores is for as many users as Lua can pass to one command. With KEYS[6], the details of these users follow each.

local chunk = 4000
local reply = redis.call('HMGET', KEYS[2], 'w', 'g', 'y', 'i', 'l')
if not reply[1] then
  return {}
end
for first = 1, #ARGV, chunk do
  local last = math.min(#ARGV, first + chunk - 1)
  reply[#reply + 1] = redis.call('ZMSCORE', KEYS[1], unpack(ARGV, first, last))
  if KEYS[6] then
    reply[#reply + 1] = redis.call('HMGET', KEYS[6], unpack(ARGV, first, last))
  end
end
return reply
