-- Begins a feed, or has it exist for longer.
--
-- KEYS     see feed.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  for how long it exists from now on, in milliseconds
-- ARGV[3]  the green threshold of a new feed, in milliseconds
-- ARGV[4]  the yellow threshold

local now = clock()
claim()
load_feed(now)
if not feed then
  redis.call('HSET', feed_key, 'g', ARGV[3], 'y', ARGV[4])
  feed = {}
  restart(now)
end
redis.call('PEXPIRE', feed_key, ARGV[2])
redis.call('PEXPIRE', changes_key, ARGV[2])
settle()
return 0
