-- Reads entries of a feed. It changes nothing.
--
-- KEYS     see sides.lua; feed_key and changes_key are in feed.lua
-- ARGV[1]  the ID after which to read, '' for none
-- ARGV[2]  how many entries at most
--
-- Returns {watermark, ID and link of the last entry, entries}; {} if there is no feed.

local feed = feed_key and redis.call('HMGET', feed_key, 'w', 'i', 'l')
if not feed or not feed[1] then
  return {}
end
local reads = ARGV[1] ~= '' and changes_key
feed[4] = reads and redis.call('XRANGE', changes_key, '(' .. ARGV[1], '+', 'COUNT', ARGV[2]) or {}
return feed
