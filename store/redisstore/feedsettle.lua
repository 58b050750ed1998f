-- Has a feed restart when all servers are sure to know of companions whose bit was just set: until then they may append
-- and sweep without them.
--
-- KEYS     see feed.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  how long other servers may not know of them from now on, in milliseconds

local now = clock()
load_feed(now)
if feed then
  redis.call('HSET', feed_key, 's', digits(now + tonumber(ARGV[2])))
end
return 0
