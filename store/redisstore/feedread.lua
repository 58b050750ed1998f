-- Reads entries of a feed. It changes nothing.
--
-- KEYS[1]  the feed: see feed.lua
-- KEYS[2]  its entries
-- ARGV[1]  the ID after which to read, '' for none
-- ARGV[2]  how many entries at most
--
-- Returns {watermark, ID and link of the last entry, entries}; {} if there is no feed.

local feed = redis.call('HMGET', KEYS[1], 'w', 'i', 'l')
if not feed[1] then
  return {}
end
feed[4] = ARGV[1] == '' and {} or redis.call('XRANGE', KEYS[2], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
return feed
