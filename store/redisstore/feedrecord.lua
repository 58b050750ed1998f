-- Begins a feed, or has it exist for longer.
--
-- KEYS     see feed.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  for how long it exists from now on, in milliseconds
-- ARGV[3]  the green threshold of a new feed, in milliseconds
-- ARGV[4]  the yellow threshold
-- ARGV[5]  how long other servers may write without appending from now on, in milliseconds; '' if they do not, and then
--          no feed is begun
--
-- Returns 1 if there is a feed afterwards, otherwise 0.

local now, settle = clock(), tonumber(ARGV[5])
load_feed(now)
if not feed then
  if not settle then
    return 0
  end
  redis.call('HSET', feed_key, 'g', ARGV[3], 'y', ARGV[4])
  feed = {}
  restart(now)
end
if settle then
  redis.call('HSET', feed_key, 's', digits(now + settle))
end
redis.call('PEXPIRE', feed_key, ARGV[2])
redis.call('PEXPIRE', changes_key, ARGV[2])
return 1
